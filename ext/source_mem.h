/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * A source over a buffer of the caller's, for the C tests and the fuzzers.
 */

#ifndef FM_SOURCE_MEM_H
#define FM_SOURCE_MEM_H

#include <stdbool.h>

#include "error.h"
#include "source.h"

/*
 * data must outlive the source. With borrowable false the source only reads,
 * as a stock /proc/kcore does. Offsets from fail_offset on can't be read and
 * give fail_errno (UINT64_MAX: all can).
 */
int fm_source_mem_create(const void *data, size_t size, bool borrowable,
			 uint64_t fail_offset, int fail_errno,
			 struct fm_source **ret, struct fm_error *err);

#endif /* FM_SOURCE_MEM_H */
