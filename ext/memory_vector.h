/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Many reads in one call: what is mapped is copied, the rest is sorted and read
 * in as few system calls as it takes.
 *
 * Does not change what a read means: each item has the bytes or the fault that
 * fm_memory_read would give it. Every byte was read after the call began,
 * unless the page cache had it.
 *
 * Units: bytes. Thread rule: as memory.h.
 */

#ifndef FM_MEMORY_VECTOR_H
#define FM_MEMORY_VECTOR_H

#include "memory.h"

/* Item at could not be read. */
struct fm_vector_fault {
	size_t at;
	/* The first address that can't be read. */
	uint64_t address;
	enum fm_fault_reason reason;
	int os_errno;
};

struct fm_vector {
	/*
	 * What to read. Item i is at addresses[i * stride] and has
	 * addresses[i * stride + 1] bytes if stride is 2, item_size bytes if
	 * it is 1. The bytes of all items together are fewer than 2^63.
	 */
	const uint64_t *addresses;
	size_t stride, item_size;
	/* Fewer than 2^32. */
	size_t nr;
	bool physical;
	/* Where to: item i goes to bufs[i], or if bufs is NULL the items go to
	 * out, back to back. */
	unsigned char *out;
	unsigned char *const *bufs;
	/*
	 * Called every 10 to 50 ms of a long call, and at least every 16 MiB:
	 * false ends it. NULL if nobody wants to know.
	 */
	bool (*go_on)(void *arg);
	void *arg;

	/* Result, allocated with malloc: in no order, NULL if there are none.
	 * The bytes of these items are zeros. */
	struct fm_vector_fault *faults;
	size_t nr_faults;
};

/*
 * Returns 0 if every item was read or has a fault, 1 if go_on ended it, with
 * the contents of all items unspecified, -1 if there is no memory. The faults
 * are the caller's in all cases.
 */
int fm_memory_read_vector(struct fm_memory *memory, struct fm_vector *vector,
			  struct fm_error *err);

/*
 * Read the pages of these ranges into the page cache, as many as it has room
 * for; out and bufs are not used. What can't be read is left out. Does nothing
 * if the cache is off; what is mapped is only read in a snapshot.
 */
int fm_memory_prefetch(struct fm_memory *memory, const struct fm_vector *vector,
		       struct fm_error *err);

#endif /* FM_MEMORY_VECTOR_H */
