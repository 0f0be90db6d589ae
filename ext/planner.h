/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * From many small ranges to few large reads: sorts ranges and cuts the sorted
 * row into runs, each of which is worth one system call.
 *
 * Does not read, and does not change the ranges. Which bytes of a run were
 * asked for is the caller's business.
 *
 * Thread rule: one thread a planner.
 */

#ifndef FM_PLANNER_H
#define FM_PLANNER_H

#include "segment_index.h"

/* Bytes between two ranges that cost less to read than a system call: of 10,000
 * reads 2.6 KB apart, each took 648 ns alone and 274 merged over gaps of up to
 * 4 KiB, the best of the limits tried. */
#define FM_PLANNER_MAX_GAP 4096
/* A run is at most so long, unless one range is. */
#define FM_PLANNER_MAX_RUN (128 << 10)

/* The pages whose borders the rule for live kernels is about. */
#define FM_PLANNER_PAGE_SIZE 4096

/* size bytes, at least one, at address, all in piece and all in the file. */
struct fm_planner_range {
	uint64_t address;
	const struct fm_piece *piece;
	size_t size;
};

struct fm_planner_run {
	const struct fm_piece *piece;
	uint64_t address;
	size_t size;
	/* The ranges in it: positions first to first + nr - 1 in the order. */
	size_t first, nr;
	/* Bytes that none of them asks for. */
	size_t gap_bytes;
};

struct fm_planner_entry {
	uint64_t address;
	/* Position in ranges. */
	size_t range;
};

struct fm_planner {
	const struct fm_planner_range *ranges;
	size_t nr;
	/* Sorted by address: a part of entries, which is ours. Both NULL if the
	 * ranges are sorted themselves, as they often are. */
	const struct fm_planner_entry *order;
	struct fm_planner_entry *entries;
	/* On a live kernel a page in which nothing was asked is not touched. */
	bool is_live;
	size_t at;
};

/* Plan nr ranges, fewer than 2^32, which stay the caller's and must stay where
 * they are. */
int fm_planner_init(struct fm_planner *planner,
		    const struct fm_planner_range *ranges, size_t nr,
		    bool is_live, struct fm_error *err);
void fm_planner_deinit(struct fm_planner *planner);

/* The next run, by address; false if there is none. Every range is in one. */
bool fm_planner_next(struct fm_planner *planner, struct fm_planner_run *run);

/* Which of the ranges is at this position in the order. */
static inline size_t fm_planner_at(const struct fm_planner *planner,
				   size_t position)
{
	return planner->order ? planner->order[position].range : position;
}

#endif /* FM_PLANNER_H */
