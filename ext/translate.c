// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Walks page tables.
 * Does not cache and does not check permissions: what is mapped can be read.
 * Built for tables that are mapped, where a walk is four or five loads.
 *
 * Invariants
 *
 * 1. A walk reads at most nr_levels entries, so tables that point to each other
 *    in a circle end like any others.
 * 2. Nothing of an entry is trusted: an address that it names is only passed to
 *    read(), which knows what there is.
 * 3. The tables of a live kernel change during the walk. Each entry is read
 *    once, in one piece, and everything is decided from that copy.
 */

#include <byteswap.h>

#include "translate.h"

static uint64_t fm_translate_entry_to_host(const struct fm_mmu *mmu,
					   uint64_t entry)
{
	const bool host_is_little_endian =
		__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

	return mmu->is_little_endian == host_is_little_endian ? entry :
								bswap_64(entry);
}

static bool fm_translate_is_leaf(const struct fm_mmu *mmu, uint64_t entry,
				 unsigned int level)
{
	return level == 0 || (entry & mmu->leaf_mask) == mmu->leaf_value;
}

static bool fm_translate_is_valid(const struct fm_mmu *mmu, uint64_t entry,
				  unsigned int level)
{
	if ((entry & mmu->valid_mask) != mmu->valid_mask)
		return false;
	return level > 0 || (entry & mmu->page_mask) == mmu->page_value;
}

int fm_translate(const struct fm_mmu *mmu, fm_translate_read_fn *read,
		 void *arg, uint64_t address, struct fm_translation *ret,
		 struct fm_error *err)
{
	unsigned int index_bits = mmu->root_shift;
	unsigned int level = mmu->nr_levels;
	uint64_t table = mmu->root;

	if (FM_UNLIKELY(!fm_mmu_translates(mmu, address)))
		return fm_error_fault(err, FM_FAULT_UNMAPPED, address, 0);
	while (level-- > 0) {
		unsigned int shift = mmu->page_shift + mmu->table_shift * level;
		uint64_t offset_mask = (UINT64_C(1) << shift) - 1;
		uint64_t index =
			(address >> shift) & ((UINT64_C(1) << index_bits) - 1);
		uint64_t entry, physical;

		if (!fm_add_u64(table, 8 * index, &physical))
			return fm_error_fault(err, FM_FAULT_UNMAPPED, address,
					      0);
		if (read(arg, physical, &entry, err))
			return -1;
		entry = fm_translate_entry_to_host(mmu, entry);
		if (!fm_translate_is_valid(mmu, entry, level))
			break;
		table = fm_mmu_entry_address(mmu, entry);
		if (fm_translate_is_leaf(mmu, entry, level)) {
			ret->physical = (table & ~offset_mask) |
					(address & offset_mask);
			ret->shift = shift;
			return 0;
		}
		index_bits = mmu->table_shift;
	}
	return fm_error_fault(err, FM_FAULT_UNMAPPED, address, 0);
}
