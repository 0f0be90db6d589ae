/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * A copy out of a mapping that survives SIGBUS: a file that was truncated, an
 * I/O error, memory that was taken away (mmap(2), "SIGBUS").
 *
 * Guards loads from the source only for SIGBUS that the kernel raised because
 * of them; every other SIGBUS goes where it went before. Does not guard
 * against SIGSEGV: a mapping that exists can be loaded from.
 *
 * Thread rule: any thread at any time.
 */

#ifndef FM_FAULT_GUARD_H
#define FM_FAULT_GUARD_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

/*
 * Make this library's SIGBUS handler the one that the kernel calls, if it is
 * not. Must have been called once before the first copy, and again from time
 * to time: faulthandler.enable() and others put theirs on top of it.
 */
int fm_fault_guard_check(struct fm_error *err);

/*
 * Copy size bytes. Returns NULL, or the address in [src, src + size) or in
 * [dst, dst + size) that could not be accessed; what was written to dst is
 * unspecified then. 1, 2, 4 and 8 bytes are read with one load each, so that
 * an aligned value is never seen half changed.
 */
const void *fm_fault_guard_copy(void *dst, const void *src, size_t size);

#endif /* FM_FAULT_GUARD_H */
