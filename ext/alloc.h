/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Memory for large arrays that are filled at once.
 *
 * Does not keep anything: the caller frees with free().
 */

#ifndef FM_ALLOC_H
#define FM_ALLOC_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* include/uapi/asm-generic/mman-common.h, Linux 5.14; glibc has it since 2.35.
 */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define FM_ALLOC_PAGE_SIZE 4096
#define FM_ALLOC_MIN_PREFAULTED (1 << 20)

/*
 * malloc of something that will be written from end to end. Where the kernel
 * can, large ones get their pages in one call: a fault for each takes a third
 * of opening a dump with 67,000 program headers.
 */
static inline void *fm_malloc_prefaulted(size_t size)
{
	void *ret = malloc(size);
	uintptr_t first, end;

	if (ret && size >= FM_ALLOC_MIN_PREFAULTED) {
		first = ((uintptr_t)ret + FM_ALLOC_PAGE_SIZE - 1) &
			-(uintptr_t)FM_ALLOC_PAGE_SIZE;
		end = ((uintptr_t)ret + size) & -(uintptr_t)FM_ALLOC_PAGE_SIZE;
		/* EINVAL from an older kernel, or from one with larger pages:
		 * then they come one by one. */
		(void)madvise((void *)first, end - first, MADV_POPULATE_WRITE);
	}
	return ret;
}

#endif /* FM_ALLOC_H */
