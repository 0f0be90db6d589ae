/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The only place that knows drgn's binary interface: which symbols of libdrgn
 * are used, where a struct drgn_program is, what a read callback must do.
 *
 * libdrgn exports its C API from 0.0.31 on (libdrgn/drgn.h; seen in PyPI's
 * wheels of 0.0.31 and 0.3.0). It promises no stable ABI, so everything is
 * checked before it is trusted, and whatever fails a check leaves drgn alone.
 *
 * Does not use Python: the caller passes the object's address and sizes.
 *
 * Thread rule: load, program and attach under the lock that protects the
 * Program (the GIL). The callback runs in any thread, with or without it.
 */

#ifndef FM_DRGN_API_H
#define FM_DRGN_API_H

#include "memory.h"

struct drgn_error;
struct drgn_platform;
struct drgn_program;

typedef struct drgn_error *fm_drgn_read_fn(void *buf, uint64_t address,
					   size_t count, uint64_t offset,
					   void *arg, bool physical);

/* The symbols of libdrgn that are used, as libdrgn/drgn.h declares them. */
struct fm_drgn_api {
	struct drgn_error *(*add_memory_segment)(struct drgn_program *prog,
						 uint64_t address,
						 uint64_t size,
						 fm_drgn_read_fn *read_fn,
						 void *arg, bool physical);
	struct drgn_error *(*create_fault)(const char *message,
					   uint64_t address);
	const struct drgn_platform *(*program_platform)(
		struct drgn_program *prog);
	void (*error_destroy)(struct drgn_error *error);
};

/*
 * What the callback of one Program needs. It must live as long as the Program,
 * since drgn has no way to take a segment away.
 */
struct fm_drgn_attachment {
	struct fm_drgn_api api;
	struct fm_memory *memory;
};

/*
 * Find the symbols in library_path, the file of drgn's extension module, which
 * must be loaded already. Fails if any is missing.
 */
int fm_drgn_api_load(struct fm_drgn_api *api, const char *library_path,
		     struct fm_error *err);

/*
 * The struct drgn_program inside the Python object of object_size bytes whose
 * head (PyObject) has head_size. Fails if it does not seem to be there, or if
 * the program has no platform yet.
 */
int fm_drgn_api_program(const struct fm_drgn_api *api, void *object,
			size_t head_size, size_t object_size,
			struct drgn_program **ret, struct fm_error *err);

/*
 * Lay every range that attachment->memory covers, virtual and physical, over
 * what prog has there. After a failure some ranges may be in place; they are
 * right, so attachment must live on all the same.
 */
int fm_drgn_api_attach(struct fm_drgn_attachment *attachment,
		       struct drgn_program *prog, struct fm_error *err);

#endif /* FM_DRGN_API_H */
