/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The page-table walker: from a virtual address to a physical one, for any MMU
 * that struct fm_mmu can describe.
 *
 * Does not remember (tlb.h does, with the same interface) and does not know
 * where physical memory is: it asks its caller for each entry.
 *
 * Thread rule: no state.
 */

#ifndef FM_TRANSLATE_H
#define FM_TRANSLATE_H

#include "error.h"
#include "mmu.h"

/* Read the eight bytes at a physical address, as they are in memory. */
typedef int fm_translate_read_fn(void *arg, uint64_t physical, uint64_t *entry,
				 struct fm_error *err);

struct fm_translation {
	/* The physical address of the virtual address that was asked for. */
	uint64_t physical;
	/* log2 of the size of the leaf (page, huge page, block) that maps it;
	 * within the leaf physical memory is contiguous. */
	uint8_t shift;
};

/* The last virtual address of the leaf that maps address, inclusive. */
static inline uint64_t fm_translation_last(const struct fm_translation *t,
					   uint64_t address)
{
	return address | ((UINT64_C(1) << t->shift) - 1);
}

/*
 * Translate address. A fault has the virtual address if the tables do not map
 * it, and the physical address of an entry that could not be read.
 */
int fm_translate(const struct fm_mmu *mmu, fm_translate_read_fn *read,
		 void *arg, uint64_t address, struct fm_translation *ret,
		 struct fm_error *err);

#endif /* FM_TRANSLATE_H */
