/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The ranges of a memory that are laid over a drgn Program's own segments, so
 * that a read in them is answered by the memory.
 *
 * drgn keeps its segments in a tree, and adding one deletes those that it
 * covers, one after the other, each with a walk to the next (libdrgn/
 * memory_reader.c, 0.3.0). After an ascending file that walk is as long as
 * there are segments: one range over 65,536 took 10 s. So ranges come from the
 * highest address down and none covers more than FM_OVERLAY_MAX_PIECES pieces;
 * then drgn's tree splits at each, and the same takes 40 ms.
 *
 * Does not add them: drgn_api.c and py_attach.c do.
 */

#ifndef FM_OVERLAY_H
#define FM_OVERLAY_H

#include "memory.h"

#define FM_OVERLAY_MAX_PIECES 256

/* This many pieces in a row that are names of the same physical memory are left
 * to drgn. An x86 kernel has 65,536 for a page that nobody reads by them (the
 * stacks of arch/x86/kernel/espfix_64.c, Linux 6.1), and deleting as many
 * segments of drgn's would take as long as opening the dump. */
#define FM_OVERLAY_MIN_NAMES 4096

struct fm_overlay {
	const struct fm_memory *memory;
	bool physical;
	/* Only what can be read in a file of file_size bytes: no page tables,
	 * and nothing that is known to be a fault. */
	bool only_readable;
	uint64_t file_size;
	/* Pieces that have not been looked at. */
	size_t nr_left;
	/* Where the range before began; 0 is the end. */
	uint64_t before;
	bool done;
};

/* memory must live as long as overlay. */
void fm_overlay_init(struct fm_overlay *overlay, const struct fm_memory *memory,
		     bool physical, bool only_readable);

/*
 * The next range: first and last inclusive, below the one before. Returns false
 * when there are no more. Together they are all addresses if the memory
 * translates, else those that segments cover, but for what is left to drgn.
 */
bool fm_overlay_next(struct fm_overlay *overlay, uint64_t *first,
		     uint64_t *last);

#endif /* FM_OVERLAY_H */
