/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The headers of an ELF core file: which segments it has and how its addresses
 * work. The decisions are drgn's (drgn_program_set_core_dump in
 * libdrgn/program.c of 0.0.22 and 0.3.0), so that the same file means the same
 * memory.
 *
 * Does not read memory contents, and of the notes only VMCOREINFO.
 */

#ifndef FM_ELF_CORE_H
#define FM_ELF_CORE_H

#include "cleanup.h"
#include "segment_index.h"
#include "vmcoreinfo.h"

struct fm_elf_core {
	bool is_64_bit;
	bool is_little_endian;
	/* e_machine (System V ABI, "ELF Header"). */
	uint16_t machine;
	/* A VMCOREINFO note: a kernel's memory. */
	bool has_vmcoreinfo;
	struct fm_vmcoreinfo vmcoreinfo;
	/* This is /proc/kcore: a CORE note NT_TASKSTRUCT, on procfs. */
	bool is_kcore;
	/* PT_LOADs in header order; not mapped. */
	struct fm_segment *segments;
	size_t nr_segments;
};

/*
 * Read the headers of the open file fd, which stays the caller's; its file
 * position is neither used nor changed. FM_ERROR_FORMAT if it is not an ELF
 * core file or if its headers can't be read. On success the caller must call
 * fm_elf_core_deinit.
 *
 * The file is not trusted: memory and time are bounded by its size, and the
 * numbers in the segments may be anything.
 */
int fm_elf_core_init(struct fm_elf_core *core, int fd, struct fm_error *err);
void fm_elf_core_deinit(struct fm_elf_core *core);

#endif /* FM_ELF_CORE_H */
