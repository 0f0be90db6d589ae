/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * An MMU as data: what a page table looks like. The architectures fill it in
 * (mmu_x86_64.c, mmu_aarch64.c) from the VMCOREINFO of the kernel; the one
 * walker (translate.c) reads it.
 *
 * Does not read memory.
 */

#ifndef FM_MMU_H
#define FM_MMU_H

#include "vmcoreinfo.h"

/* x86-64 and aarch64 have at most five (4 KiB granule, 52-bit addresses). */
#define FM_MMU_MAX_LEVELS 5

struct fm_mmu {
	/* For people: "x86-64, 4 levels". */
	char name[40];
	/* log2 of the page, of the entries of a table and of the entries of
	 * the root table, in which the walk begins. */
	uint8_t page_shift, table_shift, root_shift;
	/* Tables that a walk passes, the root included. Level 0 is the last
	 * one, whose entries are pages. */
	uint8_t nr_levels;
	/* Addresses that the root translates, both inclusive: outside of
	 * [first_low, last_low] and [first_high, last_high] nothing is mapped.
	 * An empty range has first > last. */
	uint64_t first_low, last_low, first_high, last_high;

	/* An entry is valid if (entry & valid_mask) == valid_mask. */
	uint64_t valid_mask;
	/*
	 * A valid entry above level 0 is a leaf (huge page, block) if
	 * (entry & leaf_mask) == leaf_value. At level 0 it is a page if
	 * (entry & page_mask) == page_value.
	 */
	uint64_t leaf_mask, leaf_value, page_mask, page_value;
	/* Physical address: the bits of address_mask, and the bits of
	 * high_mask shifted up. */
	uint64_t address_mask, high_mask;
	uint8_t high_shift;
	bool is_little_endian;

	/* Physical address of the root table. */
	uint64_t root;
};

/*
 * The MMU of a kernel by its VMCOREINFO. Returns false, with *why saying what
 * is missing or not known, if addresses can't be translated.
 */
bool fm_mmu_x86_64_init(struct fm_mmu *mmu, const struct fm_vmcoreinfo *info,
			const char **why);
bool fm_mmu_aarch64_init(struct fm_mmu *mmu, const struct fm_vmcoreinfo *info,
			 bool is_little_endian, const char **why);

/* The physical address that a leaf or table entry names. */
static inline uint64_t fm_mmu_entry_address(const struct fm_mmu *mmu,
					    uint64_t entry)
{
	return (entry & mmu->address_mask) |
	       ((entry & mmu->high_mask) << mmu->high_shift);
}

static inline bool fm_mmu_translates(const struct fm_mmu *mmu, uint64_t address)
{
	return (address >= mmu->first_low && address <= mmu->last_low) ||
	       (address >= mmu->first_high && address <= mmu->last_high);
}

#endif /* FM_MMU_H */
