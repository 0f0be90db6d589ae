// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Fills the TLB. Does not evict by age: a page goes where its number says.
 * Built for scripts that follow pointers within a few hundred pages; the direct
 * map needs one entry for 2 MiB.
 */

#include <string.h>

#include "tlb.h"

void fm_tlb_init(struct fm_tlb *tlb, const struct fm_mmu *mmu)
{
	memset(tlb, 0, sizeof(*tlb));
	tlb->small_shift = mmu->page_shift;
	tlb->large_shift = mmu->page_shift + mmu->table_shift;
}

static void fm_tlb_set(struct fm_tlb_entry *entries, size_t nr_entries,
		       uint8_t shift, uint64_t address, uint64_t physical)
{
	uint64_t page = address >> shift;
	struct fm_tlb_entry *entry = &entries[page % nr_entries];

	physical &= UINT64_MAX << shift;
	__atomic_store_n(&entry->check, (page + 1) ^ physical,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&entry->physical, physical, __ATOMIC_RELAXED);
}

void fm_tlb_fill(struct fm_tlb *tlb, uint64_t address,
		 const struct fm_translation *translation)
{
	if (translation->shift >= tlb->large_shift)
		fm_tlb_set(tlb->large, FM_TLB_LARGE, tlb->large_shift, address,
			   translation->physical);
	else
		fm_tlb_set(tlb->small, FM_TLB_SMALL, tlb->small_shift, address,
			   translation->physical);
}
