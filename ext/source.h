/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Where bytes come from: a table of four operations that every kind of file,
 * and the buffer that the tests use, fills in.
 *
 * Knows nothing of addresses: a source has offsets in bytes from 0, and what
 * they mean is the business of the segment index.
 *
 * Thread rule: any thread may call borrow, read and size at any time; create
 * and destroy belong to the owner.
 */

#ifndef FM_SOURCE_H
#define FM_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "util.h"

struct fm_source;

struct fm_source_ops {
	/*
	 * Memory that holds the bytes [offset, offset + size) of the source and
	 * stays valid until the source is destroyed, or NULL if there is none.
	 * Loads from it may raise SIGBUS at any time and see zeros between the
	 * end of a file and the end of its last page: copy with fault_guard,
	 * and not past fm_source_size. *os_errno says why it is NULL (0: this
	 * source never has any).
	 */
	const void *(*borrow)(struct fm_source *source, uint64_t offset,
			      uint64_t size, int *os_errno);
	/*
	 * Read up to size bytes at offset into buf. Returns how many leading
	 * bytes of buf were filled; if fewer than size, *os_errno says why (0:
	 * the source ends there). What follows them in buf is unspecified.
	 */
	size_t (*read)(struct fm_source *source, void *buf, uint64_t offset,
		       size_t size, int *os_errno);
	/* Bytes in the source now (it may grow or shrink), UINT64_MAX if that
	 * can't be known. */
	uint64_t (*size)(struct fm_source *source);
	void (*destroy)(struct fm_source *source);
};

struct fm_source {
	const struct fm_source_ops *ops;
	/* System calls made by borrow, read and size. */
	fm_counter syscalls;
};

static inline const void *fm_source_borrow(struct fm_source *source,
					   uint64_t offset, uint64_t size,
					   int *os_errno)
{
	return source->ops->borrow(source, offset, size, os_errno);
}

static inline size_t fm_source_read(struct fm_source *source, void *buf,
				    uint64_t offset, size_t size, int *os_errno)
{
	return source->ops->read(source, buf, offset, size, os_errno);
}

static inline uint64_t fm_source_size(struct fm_source *source)
{
	return source->ops->size(source);
}

/* NULL is allowed. */
static inline void fm_source_destroy(struct fm_source *source)
{
	if (source)
		source->ops->destroy(source);
}

FM_DEFINE_CLEANUP(source, struct fm_source *, fm_source_destroy(value))

#endif /* FM_SOURCE_H */
