// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The MMU of x86-64: 4 and 5 levels, pages of 4 KiB, 2 MiB and 1 GiB.
 * Does not check reserved bits, as drgn does not: a dump holds the tables of a
 * processor that accepted them.
 *
 * Intel SDM volume 3, 5.5 "4-Level Paging and 5-Level Paging"; AMD64 APM volume
 * 2, 7.10.1 (the encryption bit).
 */

#include <stdio.h>

#include "mmu.h"

/*
 * phys_base is defined against this address: a symbol of the kernel's image is
 * at physical symbol - __START_KERNEL_map + phys_base (__phys_addr_symbol,
 * arch/x86/include/asm/page_64.h, Linux 6.12; the address is fixed in
 * Documentation/arch/x86/x86_64/mm.rst). KASLR moves the symbol and phys_base.
 */
#define FM_X86_64_START_KERNEL_MAP UINT64_C(0xffffffff80000000)

/* With 4 levels; a fifth changes what fm_mmu_x86_64_init sets. */
static const struct fm_mmu fm_mmu_x86_64 = {
	.page_shift = 12,
	.table_shift = 9,
	.root_shift = 9,
	.nr_levels = 4,
	.last_high = UINT64_MAX,
	/* P. */
	.valid_mask = 0x1,
	/* PS. In the top table it is reserved; drgn takes it for a leaf there,
	 * and so it is one here. */
	.leaf_mask = 0x80,
	.leaf_value = 0x80,
	.page_mask = 0x1,
	.page_value = 0x1,
	/* Bits 51:12. */
	.address_mask = UINT64_C(0x000ffffffffff000),
	.is_little_endian = true,
};

bool fm_mmu_x86_64_init(struct fm_mmu *mmu, const struct fm_vmcoreinfo *info,
			const char **why)
{
	uint8_t sign_bit;

	*mmu = fm_mmu_x86_64;
	if (info->pgtable_l5_enabled.is_set && info->pgtable_l5_enabled.value) {
		mmu->nr_levels = 5;
	}
	snprintf(mmu->name, sizeof(mmu->name), "x86-64, %u levels",
		 mmu->nr_levels);
	/* Canonical addresses repeat their highest bit (SDM volume 1, 3.3.7.1).
	 */
	sign_bit = mmu->page_shift + mmu->table_shift * mmu->nr_levels - 1;
	mmu->last_low = (UINT64_C(1) << sign_bit) - 1;
	mmu->first_high = UINT64_MAX << sign_bit;
	if (!info->swapper_pg_dir.is_set) {
		*why = "VMCOREINFO has no swapper_pg_dir";
		return false;
	}
	/* In VMCOREINFO since Linux commit 401721ecd1dc (v4.10). */
	if (!info->phys_base.is_set) {
		*why = "VMCOREINFO has no phys_base";
		return false;
	}
	/* The encryption bit of SME and SEV is in every entry but is no part
	 * of the address (sme_mask, Linux commit aee6c0d4e7d2 and
	 * Documentation/admin-guide/kdump/vmcoreinfo.rst). */
	if (info->sme_mask.is_set)
		mmu->address_mask &= ~info->sme_mask.value;
	mmu->root = info->swapper_pg_dir.value - FM_X86_64_START_KERNEL_MAP +
		    info->phys_base.value;
	return true;
}
