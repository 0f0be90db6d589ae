// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Chooses the ranges that are laid over drgn's own. Does not read. Built for
 * one pass over 70,000 pieces when a Program is attached to.
 */

#include "overlay.h"

void fm_overlay_init(struct fm_overlay *overlay, const struct fm_memory *memory,
		     bool physical, bool only_readable)
{
	*overlay = (struct fm_overlay){
		.memory = memory,
		.physical = physical,
		.only_readable = only_readable,
		.file_size = only_readable ? fm_source_size(memory->source) : 0,
		.nr_left = memory->indexes[physical].nr_pieces,
	};
}

/* The last address of piece up to which it can be read; false if none can. */
static bool fm_overlay_readable_last(const struct fm_overlay *overlay,
				     const struct fm_piece *piece,
				     uint64_t *last)
{
	uint64_t in_file = 0;

	*last = piece->last;
	if (!overlay->only_readable)
		return true;
	if (piece->file_offset < overlay->file_size)
		in_file = fm_min_u64(piece->file_size,
				     overlay->file_size - piece->file_offset);
	if (in_file > piece->last - piece->first ||
	    (overlay->memory->zero_fill && in_file == piece->file_size))
		return true;
	*last = piece->first + in_file - 1;
	return in_file != 0;
}

/* Ranges of what segments cover. */
static bool fm_overlay_next_covered(struct fm_overlay *overlay, uint64_t *first,
				    uint64_t *last)
{
	const struct fm_piece *pieces =
		overlay->memory->indexes[overlay->physical].pieces;
	size_t n = 0;

	while (overlay->nr_left && n < FM_OVERLAY_MAX_PIECES) {
		const struct fm_piece *piece = &pieces[overlay->nr_left - 1];
		uint64_t readable_last;

		if (!fm_overlay_readable_last(overlay, piece, &readable_last)) {
			overlay->nr_left--;
			if (n)
				break;
			continue;
		}
		if (n && readable_last + 1 != *first)
			break;
		if (!n)
			*last = readable_last;
		*first = piece->first;
		overlay->nr_left--;
		n++;
	}
	return n;
}

/* How many pieces from the nr_left'th down are names of the same memory; at
 * least one. */
static size_t fm_overlay_names(const struct fm_overlay *overlay)
{
	const struct fm_piece *last =
		&overlay->memory->indexes[0].pieces[overlay->nr_left - 1];
	const struct fm_segment *segments = overlay->memory->core.segments;
	const struct fm_segment *one = &segments[last->segment], *other;
	size_t n = 1;

	while (n < overlay->nr_left && one->has_physical_address) {
		other = &segments[last[-(ptrdiff_t)n].segment];
		if (!other->has_physical_address ||
		    other->physical_address != one->physical_address ||
		    other->size != one->size)
			break;
		n++;
	}
	return n;
}

/* Ranges of all addresses, cut where pieces begin. */
static bool fm_overlay_next_of_all(struct fm_overlay *overlay, uint64_t *first,
				   uint64_t *last)
{
	const struct fm_piece *pieces = overlay->memory->indexes[0].pieces;

	while (!overlay->done) {
		size_t n = 0, names = 0;
		bool any = true;

		/* From 0 this is the last address. */
		*last = overlay->before - 1;
		while (overlay->nr_left && n < FM_OVERLAY_MAX_PIECES) {
			names = fm_overlay_names(overlay);
			if (names >= FM_OVERLAY_MIN_NAMES)
				break;
			overlay->nr_left -= names;
			n += names;
			names = 0;
		}
		if (names) {
			uint64_t names_last = pieces[overlay->nr_left - 1].last;

			overlay->nr_left -= names;
			overlay->before = pieces[overlay->nr_left].first;
			any = names_last < *last;
			*first = names_last + 1;
		} else {
			overlay->before =
				overlay->nr_left ?
					pieces[overlay->nr_left].first :
					0;
			*first = overlay->before;
		}
		overlay->done = overlay->before == 0;
		if (any)
			return true;
	}
	return false;
}

bool fm_overlay_next(struct fm_overlay *overlay, uint64_t *first,
		     uint64_t *last)
{
	if (overlay->memory->translates && !overlay->physical &&
	    !overlay->only_readable)
		return fm_overlay_next_of_all(overlay, first, last);
	return fm_overlay_next_covered(overlay, first, last);
}
