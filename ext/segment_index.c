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

#include "alloc.h"
#include "cleanup.h"
#include "radix.h"
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

/* Pieces as they are found, with room for capacity. */
struct fm_pieces {
	struct fm_piece *items;
	size_t size, capacity;
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

/*
 * The extents in order of address, *nr_ret of them, in the allocation that is
 * returned.
 */
static struct fm_extent *fm_extents_create(const struct fm_segment *segments,
					   size_t nr_segments,
					   uint64_t address_mask, bool physical,
					   size_t *nr_ret)
{
	FM_AUTO_FREE struct fm_extent *extents =
		malloc((nr_segments + 1) * sizeof(*extents));
	FM_AUTO_FREE struct fm_extent *scratch = NULL;
	bool sorted = true;
	size_t n = 0;

	if (!extents)
		return NULL;
	for (size_t i = 0; i < nr_segments; i++) {
		uint64_t first = physical ? segments[i].physical_address :
					    segments[i].address;
		uint64_t last;

		if (segments[i].size == 0 || first > address_mask ||
		    (physical && !segments[i].has_physical_address))
			continue;
		last = fm_range_last(first, segments[i].size, address_mask);
		/* Another name for the same memory: the later one wins. An x86
		 * kernel has 65,536 for one page (espfix_64.c, Linux 6.1). */
		if (n > 0 && extents[n - 1].first == first &&
		    extents[n - 1].last == last)
			n--;
		extents[n] = (struct fm_extent){ first, last, i };
		if (n > 0 && extents[n - 1].first > first)
			sorted = false;
		n++;
	}
	*nr_ret = n;
	/* Most files have them sorted, and that is the case to be fast in. */
	if (sorted)
		return FM_STEAL_PTR(extents);
	scratch = fm_malloc_prefaulted(n * sizeof(*scratch));
	if (!scratch)
		return NULL;
	/* By first; those that begin together stay in header order. */
	return fm_radix_sort(extents, scratch, n, sizeof(*extents)) == extents ?
		       FM_STEAL_PTR(extents) :
		       FM_STEAL_PTR(scratch);
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

static bool fm_pieces_push(struct fm_pieces *pieces,
			   const struct fm_piece *piece)
{
	if (pieces->size == pieces->capacity) {
		size_t capacity = 2 * pieces->capacity;
		struct fm_piece *items =
			realloc(pieces->items, capacity * sizeof(*items));

		if (!items)
			return false;
		pieces->items = items;
		pieces->capacity = capacity;
	}
	pieces->items[pieces->size++] = *piece;
	return true;
}

/* What ends no later than extent and comes before it in the headers is hidden
 * by it from here on. Without this the 65,536 names that an x86 kernel has for
 * one page (espfix_64.c) would all be in the heap. */
static void fm_extent_heap_hide(struct fm_extent_heap *heap,
				const struct fm_extent *extent)
{
	while (heap->size && heap->items[0]->segment < extent->segment &&
	       heap->items[0]->last <= extent->last)
		fm_extent_heap_pop(heap);
	fm_extent_heap_push(heap, extent);
}

/*
 * Walk the addresses upwards and write down who owns them. Every start and
 * every end of an extent can begin at most one piece, so there are at most
 * twice as many pieces as extents. Returns false if there is no memory.
 */
static bool fm_pieces_sweep(const struct fm_segment *segments,
			    const struct fm_extent *extents, size_t nr_extents,
			    struct fm_extent_heap *heap,
			    struct fm_pieces *pieces)
{
	size_t next = 0;
	uint64_t address = 0;

	for (;;) {
		const struct fm_extent *top;
		struct fm_piece *previous;
		uint64_t last;

		while (heap->size && heap->items[0]->last < address)
			fm_extent_heap_pop(heap);
		if (!heap->size) {
			if (next == nr_extents)
				return true;
			address = extents[next].first;
		}
		while (next < nr_extents && extents[next].first == address)
			fm_extent_heap_hide(heap, &extents[next++]);
		top = heap->items[0];
		last = top->last;
		if (next < nr_extents && extents[next].first <= last)
			last = extents[next].first - 1;

		previous =
			pieces->size ? &pieces->items[pieces->size - 1] : NULL;
		if (previous && previous->segment == top->segment &&
		    previous->last + 1 == address) {
			previous->last = last;
		} else {
			struct fm_piece piece =
				fm_piece_of(segments, top, address, last);

			if (!fm_pieces_push(pieces, &piece))
				return false;
		}
		if (last == UINT64_MAX)
			return true;
		address = last + 1;
	}
}

FM_DEFINE_CLEANUP(pieces, struct fm_pieces, free(value.items))

int fm_segment_index_init(struct fm_segment_index *index,
			  const struct fm_segment *segments, size_t nr_segments,
			  uint64_t address_mask, bool physical,
			  struct fm_error *err)
{
	size_t nr_extents;
	FM_AUTO_FREE struct fm_extent *extents = NULL;
	FM_AUTO_FREE const struct fm_extent **heap_items = NULL;
	FM_CLEANUP(fm_cleanup_pieces) struct fm_pieces pieces = { 0 };
	FM_AUTO_FREE uint64_t *firsts = NULL;
	struct fm_piece *fitted;

	extents = fm_extents_create(segments, nr_segments, address_mask,
				    physical, &nr_extents);
	if (!extents)
		return fm_error_no_memory(err);
	heap_items = malloc((nr_extents + 1) * sizeof(*heap_items));
	/* Seldom more than that. */
	pieces.capacity = nr_extents + 1;
	pieces.items =
		fm_malloc_prefaulted(pieces.capacity * sizeof(*pieces.items));
	if (!heap_items || !pieces.items)
		return fm_error_no_memory(err);
	/* An index of nothing still has the piece that the hint points to,
	 * and it holds no address. */
	pieces.items[0] = (struct fm_piece){ .first = 1 };
	if (!fm_pieces_sweep(segments, extents, nr_extents,
			     &(struct fm_extent_heap){ .items = heap_items },
			     &pieces))
		return fm_error_no_memory(err);

	fitted = realloc(pieces.items,
			 (pieces.size + 1) * sizeof(*pieces.items));
	if (fitted)
		pieces.items = fitted;
	firsts = malloc((pieces.size + 1) * sizeof(*firsts));
	if (!firsts)
		return fm_error_no_memory(err);
	for (size_t i = 0; i < pieces.size; i++) {
		struct fm_piece *piece = &pieces.items[i];

		fm_piece_set_map_last(piece, &segments[piece->segment]);
		firsts[i] = piece->first;
	}

	index->nr_pieces = pieces.size;
	index->pieces = FM_STEAL_PTR(pieces.items);
	index->firsts = FM_STEAL_PTR(firsts);
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
