/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * A source over an open file: one mapping of the whole file where the kernel
 * gives one, a mapping per borrowed range where it does not, pread always.
 *
 * Does not survive SIGBUS itself: its users copy borrowed bytes with
 * fault_guard and, where that fails, read the same bytes with pread, which
 * turns the fault into an answer or an errno.
 */

#ifndef FM_SOURCE_FILE_H
#define FM_SOURCE_FILE_H

#include <stdbool.h>

#include "error.h"
#include "file_lock.h"
#include "source.h"

struct fm_source_file_options {
	/* False: never map, borrow always gives NULL. */
	bool map;
	/*
	 * The file is /proc/kcore: its size is made up, each range is mapped
	 * for itself (the kernel decides for each), and reads hold a lock.
	 */
	bool kcore;
	/* End of the last byte that anybody will borrow, in bytes. */
	uint64_t extent;
	/* kcore: the lock of the open file if others share it, else NULL; the
	 * source takes a reference of its own. */
	struct fm_file_lock *lock;
};

/*
 * fd must be open for reading. The source owns it if 0 is returned, the caller
 * still does if not.
 */
int fm_source_file_create(int fd, const struct fm_source_file_options *options,
			  struct fm_source **ret, struct fm_error *err);

/* The source's descriptor, which it keeps. */
int fm_source_file_fd(const struct fm_source *source);

#endif /* FM_SOURCE_FILE_H */
