/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * A memory of translations: 256 pages and 64 huge pages. A hit costs 2 ns where
 * a walk over mapped tables costs 15.
 *
 * Removable: without it every translation is a walk, and nothing else changes.
 * Not for memory that changes: entries are never dropped. A live kernel's
 * translations are walked each time.
 *
 * Thread rule: any number of threads, without a lock. An entry is two words
 * that are written one after the other; the first is stored as tag XOR value,
 * so that the halves of two entries do not match (R. Hyatt, "A lock-less
 * transposition table").
 */

#ifndef FM_TLB_H
#define FM_TLB_H

#include "translate.h"

#define FM_TLB_SMALL 256
#define FM_TLB_LARGE 64

struct fm_tlb_entry {
	/* (number of the virtual page + 1) ^ physical: never matches at 0. */
	uint64_t check;
	/* Physical address of the page's first byte. */
	uint64_t physical;
};

struct fm_tlb {
	struct fm_tlb_entry small[FM_TLB_SMALL], large[FM_TLB_LARGE];
	/* log2 of the sizes of both. */
	uint8_t small_shift, large_shift;
};

void fm_tlb_init(struct fm_tlb *tlb, const struct fm_mmu *mmu);
/* Remember what fm_translate gave for address. */
void fm_tlb_fill(struct fm_tlb *tlb, uint64_t address,
		 const struct fm_translation *translation);

static inline bool fm_tlb_probe(const struct fm_tlb_entry *entries,
				size_t nr_entries, uint8_t shift,
				uint64_t address, struct fm_translation *ret)
{
	uint64_t offset_mask = (UINT64_C(1) << shift) - 1;
	uint64_t page = address >> shift;
	const struct fm_tlb_entry *entry = &entries[page % nr_entries];
	uint64_t check = __atomic_load_n(&entry->check, __ATOMIC_RELAXED);
	uint64_t physical = __atomic_load_n(&entry->physical, __ATOMIC_RELAXED);

	if ((check ^ physical) != page + 1)
		return false;
	ret->physical = physical | (address & offset_mask);
	ret->shift = shift;
	return true;
}

/* What fm_translate would give for address, if it is remembered. shift may be
 * less than the leaf's: a large leaf is remembered in parts. */
static inline bool fm_tlb_find(const struct fm_tlb *tlb, uint64_t address,
			       struct fm_translation *ret)
{
	return fm_tlb_probe(tlb->large, FM_TLB_LARGE, tlb->large_shift, address,
			    ret) ||
	       fm_tlb_probe(tlb->small, FM_TLB_SMALL, tlb->small_shift, address,
			    ret);
}

#endif /* FM_TLB_H */
