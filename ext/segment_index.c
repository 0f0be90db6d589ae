// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Builds and searches the index of segments.
 * Does not validate headers: any numbers are segments to it.
 * Built for 70,000 segments (a paging dump has 66,000): n log n once, then a
 * branchless binary search over 8-byte keys.
 */

#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "segment_index.h"

/* What a segment takes up in the address space that the index is of. */
struct fm_extent {
	uint64_t first, last;
	size_t segment;
};

/* A heap of extents, the one that comes last in the headers on top. */
struct fm_extent_heap {
	const struct fm_extent **items;
	size_t size;
};

static void fm_extent_heap_push(struct fm_extent_heap *heap,
				const struct fm_extent *extent)
{
	size_t i = heap->size++;

	while (i > 0) {
		size_t parent = (i - 1) / 2;

		if (heap->items[parent]->segment > extent->segment)
			break;
		heap->items[i] = heap->items[parent];
		i = parent;
	}
	heap->items[i] = extent;
}

static void fm_extent_heap_pop(struct fm_extent_heap *heap)
{
	const struct fm_extent *extent = heap->items[--heap->size];
	size_t i = 0;

	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= heap->size)
			break;
		if (child + 1 < heap->size &&
		    heap->items[child + 1]->segment >
			    heap->items[child]->segment)
			child++;
		if (extent->segment > heap->items[child]->segment)
			break;
		heap->items[i] = heap->items[child];
		i = child;
	}
	heap->items[i] = extent;
}

static int fm_extent_compare(const void *left, const void *right)
{
	uint64_t a = ((const struct fm_extent *)left)->first;
	uint64_t b = ((const struct fm_extent *)right)->first;

	return a < b ? -1 : a > b;
}

/* The extents in order of address; how many there are in *nr_ret. */
static struct fm_extent *fm_extents_create(const struct fm_segment *segments,
					   size_t nr_segments,
					   uint64_t address_mask, bool physical,
					   size_t *nr_ret)
{
	struct fm_extent *extents =
		malloc((nr_segments + 1) * sizeof(*extents));
	bool sorted = true;
	size_t n = 0;

	if (!extents)
		return NULL;
	for (size_t i = 0; i < nr_segments; i++) {
		uint64_t first = physical ? segments[i].physical_address :
					    segments[i].address;

		if (segments[i].size == 0 || first > address_mask ||
		    (physical && !segments[i].has_physical_address))
			continue;
		extents[n].first = first;
		extents[n].last =
			fm_range_last(first, segments[i].size, address_mask);
		extents[n].segment = i;
		if (n > 0 && extents[n - 1].first > first)
			sorted = false;
		n++;
	}
	/* Most files have them sorted, and that is the case to be fast in. */
	if (!sorted)
		qsort(extents, n, sizeof(*extents), fm_extent_compare);
	*nr_ret = n;
	return extents;
}

/* The piece of segment from first to last. */
static struct fm_piece fm_piece_of(const struct fm_segment *segments,
				   const struct fm_extent *extent,
				   uint64_t first, uint64_t last)
{
	const struct fm_segment *segment = &segments[extent->segment];
	uint64_t skip = first - extent->first;
	struct fm_piece piece = {
		.first = first,
		.last = last,
		.segment = extent->segment,
	};

	if (skip < segment->map_size)
		piece.map = segment->map + skip;
	if (skip < segment->file_size)
		piece.file_size = segment->file_size - skip;
	/* An offset past 2^64-1 is kept as one that no file has. */
	if (!fm_add_u64(segment->file_offset, skip, &piece.file_offset))
		piece.file_offset = UINT64_MAX;
	return piece;
}

/* Only when the piece has its end. */
static void fm_piece_set_map_last(struct fm_piece *piece,
				  const struct fm_segment *segment)
{
	if (piece->map)
		piece->map_last = fm_range_last(
			piece->first,
			segment->map_size - (piece->map - segment->map),
			piece->last);
}

/*
 * Walk the addresses upwards and write down who owns them. Every start and
 * every end of an extent can begin at most one piece, so there are at most
 * twice as many pieces as extents.
 */
static size_t fm_pieces_sweep(const struct fm_segment *segments,
			      const struct fm_extent *extents,
			      size_t nr_extents, struct fm_extent_heap *heap,
			      struct fm_piece *pieces)
{
	size_t next = 0, nr_pieces = 0;
	uint64_t address = 0;

	for (;;) {
		const struct fm_extent *top;
		struct fm_piece *previous;
		uint64_t last;

		while (heap->size && heap->items[0]->last < address)
			fm_extent_heap_pop(heap);
		if (!heap->size) {
			if (next == nr_extents)
				return nr_pieces;
			address = extents[next].first;
		}
		while (next < nr_extents && extents[next].first == address)
			fm_extent_heap_push(heap, &extents[next++]);
		top = heap->items[0];
		last = top->last;
		if (next < nr_extents && extents[next].first <= last)
			last = extents[next].first - 1;

		previous = nr_pieces ? &pieces[nr_pieces - 1] : NULL;
		if (previous && previous->segment == top->segment &&
		    previous->last + 1 == address)
			previous->last = last;
		else
			pieces[nr_pieces++] =
				fm_piece_of(segments, top, address, last);
		if (last == UINT64_MAX)
			return nr_pieces;
		address = last + 1;
	}
}

int fm_segment_index_init(struct fm_segment_index *index,
			  const struct fm_segment *segments, size_t nr_segments,
			  uint64_t address_mask, bool physical,
			  struct fm_error *err)
{
	size_t nr_extents, nr_pieces;
	FM_AUTO_FREE struct fm_extent *extents = NULL;
	FM_AUTO_FREE const struct fm_extent **heap_items = NULL;
	FM_AUTO_FREE struct fm_piece *pieces = NULL;
	FM_AUTO_FREE uint64_t *firsts = NULL;
	struct fm_piece *fitted;

	extents = fm_extents_create(segments, nr_segments, address_mask,
				    physical, &nr_extents);
	if (!extents)
		return fm_error_no_memory(err);
	heap_items = malloc((nr_extents + 1) * sizeof(*heap_items));
	pieces = calloc(2 * nr_extents + 1, sizeof(*pieces));
	if (!heap_items || !pieces)
		return fm_error_no_memory(err);
	/* An index of nothing still has the piece that the hint points to,
	 * and it holds no address. */
	pieces[0].first = 1;
	nr_pieces = fm_pieces_sweep(
		segments, extents, nr_extents,
		&(struct fm_extent_heap){ .items = heap_items }, pieces);

	fitted = realloc(pieces, (nr_pieces + 1) * sizeof(*pieces));
	if (fitted)
		pieces = fitted;
	firsts = malloc((nr_pieces + 1) * sizeof(*firsts));
	if (!firsts)
		return fm_error_no_memory(err);
	for (size_t i = 0; i < nr_pieces; i++) {
		fm_piece_set_map_last(&pieces[i], &segments[pieces[i].segment]);
		firsts[i] = pieces[i].first;
	}

	index->pieces = FM_STEAL_PTR(pieces);
	index->firsts = FM_STEAL_PTR(firsts);
	index->nr_pieces = nr_pieces;
	index->last_hit = 0;
	return 0;
}

void fm_segment_index_deinit(struct fm_segment_index *index)
{
	free(index->pieces);
	free(index->firsts);
	memset(index, 0, sizeof(*index));
}

/* Position of the last piece that begins at address or before it, or 0 if none
 * does. There must be a piece. */
static size_t fm_segment_index_position(const struct fm_segment_index *index,
					uint64_t address)
{
	const uint64_t *base = index->firsts;
	size_t n = index->nr_pieces;

	/* The compiler makes the choice a conditional move. */
	while (n > 1) {
		size_t half = n / 2;

		base = base[half] <= address ? base + half : base;
		n -= half;
	}
	return base - index->firsts;
}

const struct fm_piece *fm_segment_index_search(struct fm_segment_index *index,
					       uint64_t address)
{
	const struct fm_piece *piece;
	size_t position;

	if (index->nr_pieces == 0)
		return NULL;
	position = fm_segment_index_position(index, address);
	piece = &index->pieces[position];
	if (address < piece->first || address > piece->last)
		return NULL;
	__atomic_store_n(&index->last_hit, position, __ATOMIC_RELAXED);
	return piece;
}

uint64_t fm_segment_index_gap_last(const struct fm_segment_index *index,
				   uint64_t address)
{
	size_t next;

	if (index->nr_pieces == 0)
		return UINT64_MAX;
	next = fm_segment_index_position(index, address);
	if (index->firsts[next] <= address)
		next++;
	return next < index->nr_pieces ? index->firsts[next] - 1 : UINT64_MAX;
}

bool fm_segment_index_next_range(const struct fm_segment_index *index,
				 size_t *cursor, uint64_t *first,
				 uint64_t *last)
{
	size_t i = *cursor;

	if (i >= index->nr_pieces)
		return false;
	*first = index->pieces[i].first;
	do {
		*last = index->pieces[i++].last;
	} while (i < index->nr_pieces && index->pieces[i].first == *last + 1);
	*cursor = i;
	return true;
}
