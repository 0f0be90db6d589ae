/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The numbers of a VMCOREINFO note that address translation needs
 * (Documentation/admin-guide/kdump/vmcoreinfo.rst, Linux 6.12).
 *
 * Does not decide what they mean: that is the business of the MMU of the
 * architecture.
 */

#ifndef FM_VMCOREINFO_H
#define FM_VMCOREINFO_H

#include "util.h"

struct fm_vmcoreinfo_number {
	bool is_set;
	uint64_t value;
};

struct fm_vmcoreinfo {
	/* PAGESIZE, bytes. */
	struct fm_vmcoreinfo_number page_size;
	/* SYMBOL(swapper_pg_dir), virtual. */
	struct fm_vmcoreinfo_number swapper_pg_dir;
	/* x86-64: NUMBER(phys_base), NUMBER(pgtable_l5_enabled),
	 * NUMBER(sme_mask). */
	struct fm_vmcoreinfo_number phys_base;
	struct fm_vmcoreinfo_number pgtable_l5_enabled;
	struct fm_vmcoreinfo_number sme_mask;
	/* aarch64: NUMBER(kimage_voffset), NUMBER(VA_BITS),
	 * NUMBER(TCR_EL1_T1SZ). */
	struct fm_vmcoreinfo_number kimage_voffset;
	struct fm_vmcoreinfo_number va_bits;
	struct fm_vmcoreinfo_number tcr_el1_t1sz;
};

/*
 * Parse size bytes of lines NAME=VALUE. Lines that are not known, or whose
 * value is not a number, are as if they were not there.
 */
void fm_vmcoreinfo_parse(struct fm_vmcoreinfo *info, const char *text,
			 size_t size);

#endif /* FM_VMCOREINFO_H */
