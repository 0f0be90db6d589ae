// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Plans which ranges are read together.
 * Does not look for the best plan: it takes the ranges by address and begins a
 * run where the last one can't go on. Built for 10,000 ranges of 8 to 256
 * bytes.
 *
 * Invariants:
 *
 * 1. Every range is in exactly one run, and wholly.
 * 2. A run lies in one piece: it begins with the first byte of a range and ends
 *    with the last byte of one, so it never touches what is outside the piece.
 * 3. Between two neighbours in a run are at most FM_PLANNER_MAX_GAP bytes, and
 *    on a live kernel no whole page.
 * 4. A run is longer than FM_PLANNER_MAX_RUN only if its first range is.
 */

#include <stdlib.h>

#include "planner.h"
#include "radix.h"

static bool fm_planner_is_sorted(const struct fm_planner_range *ranges,
				 size_t nr)
{
	for (size_t i = 1; i < nr; i++) {
		if (ranges[i - 1].address > ranges[i].address)
			return false;
	}
	return true;
}

int fm_planner_init(struct fm_planner *planner,
		    const struct fm_planner_range *ranges, size_t nr,
		    bool is_live, struct fm_error *err)
{
	struct fm_planner_entry *entries;

	*planner = (struct fm_planner){
		.ranges = ranges,
		.nr = nr,
		.is_live = is_live,
	};
	if (fm_planner_is_sorted(ranges, nr))
		return 0;
	entries = malloc(2 * nr * sizeof(*entries));
	if (!entries)
		return fm_error_no_memory(err);
	for (size_t i = 0; i < nr; i++)
		entries[i] = (struct fm_planner_entry){ ranges[i].address, i };
	planner->entries = entries;
	planner->order =
		fm_radix_sort(entries, entries + nr, nr, sizeof(*entries));
	return 0;
}

void fm_planner_deinit(struct fm_planner *planner)
{
	free(planner->entries);
}

/* Whether a run whose last byte is at last may go on to range, which does not
 * begin before the run. */
static bool fm_planner_may_join(const struct fm_planner *planner,
				const struct fm_planner_run *run, uint64_t last,
				const struct fm_planner_range *range)
{
	if (range->piece != run->piece ||
	    range->address - run->address + range->size > FM_PLANNER_MAX_RUN)
		return false;
	if (range->address <= last)
		return true;
	return range->address - last - 1 <= FM_PLANNER_MAX_GAP &&
	       (!planner->is_live ||
		range->address / FM_PLANNER_PAGE_SIZE -
				last / FM_PLANNER_PAGE_SIZE <=
			1);
}

bool fm_planner_next(struct fm_planner *planner, struct fm_planner_run *run)
{
	const struct fm_planner_range *range;
	uint64_t last;

	if (planner->at == planner->nr)
		return false;
	range = &planner->ranges[fm_planner_at(planner, planner->at)];
	last = range->address + (range->size - 1);
	*run = (struct fm_planner_run){
		.piece = range->piece,
		.address = range->address,
		.first = planner->at++,
		.nr = 1,
	};
	while (planner->at < planner->nr) {
		uint64_t range_last;

		range = &planner->ranges[fm_planner_at(planner, planner->at)];
		if (!fm_planner_may_join(planner, run, last, range))
			break;
		if (range->address > last)
			run->gap_bytes += range->address - last - 1;
		range_last = range->address + (range->size - 1);
		if (range_last > last)
			last = range_last;
		run->nr++;
		planner->at++;
	}
	run->size = last - run->address + 1;
	return true;
}
