// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The MMU of aarch64: granules of 4, 16 and 64 KiB, 36 to 52 bits of address,
 * block entries; contiguous entries need nothing, each names its own page.
 * Does not translate user addresses: swapper_pg_dir is the kernel's root
 * (TTBR1), and has no other half.
 *
 * Arm ARM (DDI 0487), chapter D8 "The AArch64 Virtual Memory System
 * Architecture".
 */

#include <stdio.h>

#include "mmu.h"

/* D8.3.1: bits 1:0 are 3 for a table, and for a page in the last table; 1 for
 * a block in the others; 0 and 2 are invalid. */
static const struct fm_mmu fm_mmu_aarch64 = {
	/* No user addresses. */
	.first_low = 1,	   .last_low = 0,     .last_high = UINT64_MAX,
	.valid_mask = 0x1, .leaf_mask = 0x3,  .leaf_value = 0x1,
	.page_mask = 0x3,  .page_value = 0x3,
};

static bool fm_mmu_aarch64_granule(struct fm_mmu *mmu,
				   const struct fm_vmcoreinfo *info)
{
	static const uint8_t shifts[] = { 12, 14, 16 };

	for (size_t i = 0; i < FM_ARRAY_SIZE(shifts); i++) {
		if (info->page_size.is_set &&
		    info->page_size.value == UINT64_C(1) << shifts[i]) {
			mmu->page_shift = shifts[i];
			/* A table is one page of 8-byte entries. */
			mmu->table_shift = mmu->page_shift - 3;
			return true;
		}
	}
	return false;
}

/*
 * How many bits of an address the root table translates; 0 if not known.
 *
 * VA_BITS is what the kernel was built for. With 4 and 16 KiB a processor
 * without LPA2 makes it fold levels away and use fewer (Linux commit
 * 0dd4f60a2c76, v6.9), and 64 - T1SZ is what is in use (in VMCOREINFO since
 * Linux commit bbdbc11804ff, v5.9). With 64 KiB there are three levels either
 * way, and the root is laid out for VA_BITS even if the processor uses 48
 * (Linux commit c812026c54cf, v5.4).
 */
static uint64_t fm_mmu_aarch64_va_bits(const struct fm_mmu *mmu,
				       const struct fm_vmcoreinfo *info)
{
	if (mmu->page_shift != 16 && info->tcr_el1_t1sz.is_set &&
	    info->tcr_el1_t1sz.value)
		return 64 - info->tcr_el1_t1sz.value;
	return info->va_bits.is_set ? info->va_bits.value : 0;
}

/*
 * Which bits of an entry are the address. Bits 47:page_shift always are.
 * With 64 KiB bits 15:12 are address bits 51:48 (FEAT_LPA; zero without). With
 * 4 and 16 KiB and LPA2 bits 49:48 are themselves and bits 9:8 are address bits
 * 51:50; whether it is in use is not in VMCOREINFO, but the kernel uses it if
 * and only if addresses have 52 bits (Linux commit 352b0395b505, v6.9).
 */
static void fm_mmu_aarch64_address_bits(struct fm_mmu *mmu, uint64_t va_bits)
{
	mmu->address_mask =
		UINT64_C(0x0000ffffffffffff) & (UINT64_MAX << mmu->page_shift);
	if (mmu->page_shift == 16) {
		mmu->high_mask = 0xf000;
		mmu->high_shift = 36;
	} else if (va_bits == 52) {
		mmu->address_mask |= UINT64_C(0x0003000000000000);
		mmu->high_mask = 0x300;
		mmu->high_shift = 42;
	}
}

bool fm_mmu_aarch64_init(struct fm_mmu *mmu, const struct fm_vmcoreinfo *info,
			 bool is_little_endian, const char **why)
{
	uint64_t va_bits, table_bits;

	*mmu = fm_mmu_aarch64;
	mmu->is_little_endian = is_little_endian;
	if (!fm_mmu_aarch64_granule(mmu, info)) {
		*why = "the page size in VMCOREINFO is not one of aarch64";
		return false;
	}
	va_bits = fm_mmu_aarch64_va_bits(mmu, info);
	/* The two checks of wrapped and absurd numbers are one. */
	if (va_bits <= mmu->page_shift || va_bits > 52) {
		*why = "VMCOREINFO has no usable TCR_EL1_T1SZ or VA_BITS";
		return false;
	}
	/* swapper_pg_dir is in the kernel's image, which is at its physical
	 * address + kimage_voffset (in VMCOREINFO since Linux commit
	 * 20a166243328, v4.12). */
	if (!info->swapper_pg_dir.is_set || !info->kimage_voffset.is_set ||
	    !info->kimage_voffset.value) {
		*why = "VMCOREINFO has no swapper_pg_dir or kimage_voffset";
		return false;
	}
	mmu->root = info->swapper_pg_dir.value - info->kimage_voffset.value;
	table_bits = va_bits - mmu->page_shift;
	mmu->nr_levels = (table_bits + mmu->table_shift - 1) / mmu->table_shift;
	mmu->root_shift = (table_bits - 1) % mmu->table_shift + 1;
	mmu->first_high = UINT64_MAX << va_bits;
	fm_mmu_aarch64_address_bits(mmu, va_bits);
	snprintf(mmu->name, sizeof(mmu->name),
		 "aarch64, %u KiB granule, %u bits",
		 (1u << mmu->page_shift) / 1024, (unsigned int)va_bits);
	return true;
}
