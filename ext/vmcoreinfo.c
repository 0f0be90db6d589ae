// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Parses VMCOREINFO.
 * Does not trust it: the text ends where its size says, and a number is a
 * number only if nothing follows it. Built for 4 KiB of text once an open.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vmcoreinfo.h"

/* The longest number: 20 decimal digits and a sign. */
#define FM_VMCOREINFO_MAX_NUMBER 24

static const struct {
	const char *name;
	/* 0: C's prefixes; symbols are written in hexadecimal without one
	 * (VMCOREINFO_SYMBOL in include/linux/vmcore_info.h, Linux 6.12). */
	int base;
	size_t offset;
} fm_vmcoreinfo_fields[] = {
#define FM_FIELD(name, base, member)                                           \
	{                                                                      \
		name, base, offsetof(struct fm_vmcoreinfo, member)             \
	}
	FM_FIELD("PAGESIZE", 0, page_size),
	FM_FIELD("SYMBOL(swapper_pg_dir)", 16, swapper_pg_dir),
	FM_FIELD("NUMBER(phys_base)", 0, phys_base),
	FM_FIELD("NUMBER(pgtable_l5_enabled)", 0, pgtable_l5_enabled),
	FM_FIELD("NUMBER(sme_mask)", 0, sme_mask),
	FM_FIELD("NUMBER(kimage_voffset)", 0, kimage_voffset),
	FM_FIELD("NUMBER(VA_BITS)", 0, va_bits),
	FM_FIELD("NUMBER(TCR_EL1_T1SZ)", 0, tcr_el1_t1sz),
#undef FM_FIELD
};

static struct fm_vmcoreinfo_number fm_vmcoreinfo_number(const char *text,
							size_t size, int base)
{
	struct fm_vmcoreinfo_number number = { .is_set = false };
	char copy[FM_VMCOREINFO_MAX_NUMBER + 1];
	char *end;

	if (size == 0 || size > FM_VMCOREINFO_MAX_NUMBER)
		return number;
	memcpy(copy, text, size);
	copy[size] = '\0';
	errno = 0;
	/* Signed numbers are negated, as the kernel's %ld means them:
	 * phys_base can be below zero. */
	number.value = strtoull(copy, &end, base);
	number.is_set = !errno && end == copy + size;
	return number;
}

static void fm_vmcoreinfo_line(struct fm_vmcoreinfo *info, const char *line,
			       const char *end)
{
	const char *equals = memchr(line, '=', end - line);

	if (!equals)
		return;
	for (size_t i = 0; i < FM_ARRAY_SIZE(fm_vmcoreinfo_fields); i++) {
		const char *name = fm_vmcoreinfo_fields[i].name;

		if (strlen(name) == (size_t)(equals - line) &&
		    !memcmp(name, line, equals - line)) {
			struct fm_vmcoreinfo_number *number =
				(void *)((char *)info +
					 fm_vmcoreinfo_fields[i].offset);

			*number = fm_vmcoreinfo_number(
				equals + 1, end - equals - 1,
				fm_vmcoreinfo_fields[i].base);
			return;
		}
	}
}

void fm_vmcoreinfo_parse(struct fm_vmcoreinfo *info, const char *text,
			 size_t size)
{
	const char *end = text + size, *newline;

	memset(info, 0, sizeof(*info));
	while ((newline = memchr(text, '\n', end - text))) {
		fm_vmcoreinfo_line(info, text, newline);
		text = newline + 1;
	}
}
