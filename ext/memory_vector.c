// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Vectored reads: copies what is mapped at once, collects the rest, and has the
 * planner say what to read together.
 * Does not translate or read single ranges itself (memory_read.c). Built for
 * 10,000 items of 8 to 256 bytes, mapped or not.
 *
 * Whatever is not simple (a range over two segments, bytes that were not saved,
 * the end of the address space, a page that can't be read) is read by itself,
 * as if it had been asked for alone: so its answer is the same.
 */

#include <string.h>
#include <time.h>

#include "memory_internal.h"
#include "memory_vector.h"
#include "planner.h"

/* The time and the bytes between two questions whether to go on. */
#define FM_VECTOR_CHECK_NANOSECONDS 10000000
#define FM_VECTOR_CHECK_BYTES (16 << 20)

/* Pages that are made room for at once. */
#define FM_VECTOR_PREFETCH_STEP 1024

/* What is collected to be planned. */
struct fm_vector_pending {
	/* NULL if nobody wants the bytes. */
	unsigned char *buf;
	/* The item of the vector. */
	uint32_t at;
	/* Where it begins in the range that is read with it. */
	uint32_t skip;
};

struct fm_vector_read {
	struct fm_memory *memory;
	struct fm_vector *vector;
	struct fm_error *err;

	/* Of one length. */
	struct fm_vector_pending *pending;
	struct fm_planner_range *ranges;
	size_t nr_pending, capacity;
	/* How many more there may come to be, at least one. */
	size_t nr_left;
	/* Whole pages are read and kept. */
	bool fills_cache;

	size_t faults_capacity;
	/* Of the last question whether to go on. */
	struct timespec asked;
	uint64_t bytes_since_asked;
};

static inline uint64_t fm_vector_address(const struct fm_vector *vector,
					 size_t at)
{
	return vector->addresses[at * vector->stride];
}

static inline size_t fm_vector_size(const struct fm_vector *vector, size_t at)
{
	return vector->stride == 1 ? vector->item_size :
				     vector->addresses[at * vector->stride + 1];
}

static int fm_vector_add_fault(struct fm_vector_read *read, size_t at,
			       const struct fm_error *fault)
{
	struct fm_vector *vector = read->vector;

	if (vector->nr_faults == read->faults_capacity) {
		size_t capacity = 2 * read->faults_capacity + 16;
		struct fm_vector_fault *faults =
			realloc(vector->faults, capacity * sizeof(*faults));

		if (!faults)
			return fm_error_no_memory(read->err);
		vector->faults = faults;
		read->faults_capacity = capacity;
	}
	vector->faults[vector->nr_faults++] = (struct fm_vector_fault){
		.at = at,
		.address = fault->address,
		.reason = fault->reason,
		.os_errno = fault->os_errno,
	};
	return 0;
}

/* 1 if the call is to end. */
static int fm_vector_check(struct fm_vector_read *read, uint64_t bytes)
{
	struct fm_vector *vector = read->vector;
	struct timespec now;
	int64_t passed;

	if (!vector->go_on)
		return 0;
	read->bytes_since_asked += bytes;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	passed = (now.tv_sec - read->asked.tv_sec) * INT64_C(1000000000) +
		 (now.tv_nsec - read->asked.tv_nsec);
	if (passed < FM_VECTOR_CHECK_NANOSECONDS &&
	    read->bytes_since_asked < FM_VECTOR_CHECK_BYTES)
		return 0;
	read->asked = now;
	read->bytes_since_asked = 0;
	return vector->go_on(vector->arg) ? 0 : 1;
}

/* Read an item as if it had been asked for alone. */
static int fm_vector_read_single(struct fm_vector_read *read,
				 unsigned char *buf, size_t at)
{
	const struct fm_vector *vector = read->vector;
	uint64_t address = fm_vector_address(vector, at);
	size_t size = fm_vector_size(vector, at), done = 0;
	int ret;

	while (done < size) {
		size_t n = fm_min_u64(size - done, FM_VECTOR_CHECK_BYTES);
		struct fm_error fault;

		if (fm_memory_read(read->memory, buf + done, address + done, n,
				   vector->physical, &fault)) {
			memset(buf, 0, size);
			return fm_vector_add_fault(read, at, &fault);
		}
		done += n;
		ret = fm_vector_check(read, n);
		if (ret)
			return ret;
	}
	return 0;
}

/* Room for one more, at once for nr more. */
static int fm_vector_grow_pending(struct fm_vector_read *read, size_t nr)
{
	size_t capacity = read->capacity + nr;
	struct fm_vector_pending *pending =
		realloc(read->pending, capacity * sizeof(*pending));
	struct fm_planner_range *ranges;

	if (!pending)
		return fm_error_no_memory(read->err);
	read->pending = pending;
	ranges = realloc(read->ranges, capacity * sizeof(*ranges));
	if (!ranges)
		return fm_error_no_memory(read->err);
	read->ranges = ranges;
	read->capacity = capacity;
	return 0;
}

/* Have range read, which is, or begins with, item at. */
static inline int fm_vector_add(struct fm_vector_read *read, unsigned char *buf,
				size_t at, const struct fm_planner_range *range)
{
	if (FM_UNLIKELY(read->nr_pending == read->capacity) &&
	    fm_vector_grow_pending(read, read->nr_left))
		return -1;
	read->pending[read->nr_pending] =
		(struct fm_vector_pending){ .buf = buf, .at = at };
	read->ranges[read->nr_pending++] = *range;
	return 0;
}

/* Whether size bytes at address, which piece holds, are simply in the file and
 * have to be read from there. */
static inline bool fm_vector_is_plain(const struct fm_memory *memory,
				      const struct fm_piece *piece,
				      uint64_t address, size_t size)
{
	return size - 1 <= piece->last - address &&
	       fm_piece_saved(piece, address, size) == size &&
	       !fm_memory_is_mapped(memory, piece, address, size);
}

/* The place in the file of size bytes at address, if it is one plain place. */
static bool fm_vector_locate(struct fm_memory *memory, uint64_t address,
			     size_t size, bool physical,
			     struct fm_planner_range *range)
{
	const struct fm_piece *piece =
		fm_segment_index_find(&memory->indexes[physical], address);
	struct fm_translation translation;
	struct fm_error ignored;
	uint64_t last;

	if (!physical && memory->translates) {
		/* A live kernel's pages may be mapped though its virtual
		 * memory is not: fm_memory_read_live. */
		if (piece && memory->core.is_kcore && !piece->map)
			return false;
		if (!piece) {
			if (fm_memory_walk(memory, address, &translation,
					   &ignored))
				return false;
			last = fm_min_u64(
				fm_translation_last(&translation, address),
				fm_segment_index_gap_last(&memory->indexes[0],
							  address));
			if (size - 1 > last - address)
				return false;
			address = translation.physical;
			piece = fm_segment_index_find(&memory->indexes[1],
						      address);
		}
	}
	if (!piece || !fm_vector_is_plain(memory, piece, address, size))
		return false;
	*range = (struct fm_planner_range){
		.address = address,
		.piece = piece,
		.size = size,
	};
	return true;
}

/* An item that is not simply copied from a mapping. */
static int fm_vector_read_slow(struct fm_vector_read *read, unsigned char *buf,
			       size_t at)
{
	const struct fm_vector *vector = read->vector;
	struct fm_memory *memory = read->memory;
	uint64_t address =
		fm_memory_normalize(memory, fm_vector_address(vector, at));
	size_t size = fm_vector_size(vector, at);
	struct fm_planner_range range;

	if (size >= FM_MEMORY_BULK_SIZE ||
	    size - 1 > memory->address_mask - address ||
	    !fm_vector_locate(memory, address, size, vector->physical, &range))
		return fm_vector_read_single(read, buf, at);
	return fm_vector_add(read, buf, at, &range);
}

/* The part of a piece that was copied from last: addresses first to first +
 * span. */
struct fm_vector_window {
	/* NULL if there is none. */
	const unsigned char *map;
	uint64_t first, span;
};

/* Copy an item that is mapped, but not in the window; it is then. */
static bool fm_vector_move_window(struct fm_memory *memory,
				  struct fm_vector_window *window,
				  unsigned char *buf, uint64_t address,
				  size_t size, bool physical)
{
	const struct fm_piece *piece;

	address = fm_memory_normalize(memory, address);
	piece = fm_segment_index_find(&memory->indexes[physical], address);
	if (!piece)
		return !physical &&
		       size - 1 <= memory->address_mask - address &&
		       fm_memory_copy_translated(memory, buf, address, size);
	if (!fm_memory_copy_mapped(memory, piece, buf, address, size))
		return false;
	*window = (struct fm_vector_window){
		.map = piece->map,
		.first = piece->first,
		.span = piece->map_last - piece->first,
	};
	return true;
}

/*
 * Copy what is mapped and collect the rest of the items begin to end - 1, few
 * enough to be looked at as one moment: whether maps may be used is asked when
 * the window moves. That makes 3 ns of an item that would take 6.
 */
static inline int fm_vector_read_stretch(struct fm_vector_read *read,
					 size_t begin, size_t end,
					 size_t stride, unsigned char **out)
{
	const struct fm_vector *vector = read->vector;
	struct fm_memory *memory = read->memory;
	const uint64_t *item = vector->addresses + begin * stride;
	struct fm_vector_window window = { 0 };
	uint64_t bytes = 0, reads = 0;
	int ret = 0;

	for (size_t i = begin; i < end && !ret; i++, item += stride) {
		size_t size = stride == 1 ? vector->item_size : item[1];
		unsigned char *buf = vector->bufs ? vector->bufs[i] : *out;
		uint64_t skip = item[0] - window.first;

		*out += size;
		/* A size of 0 is not less than any either. */
		if (FM_LIKELY(skip <= window.span &&
			      size - 1 < FM_MEMORY_BULK_SIZE - 1 &&
			      size - 1 <= window.span - skip && window.map &&
			      !fm_fault_guard_copy(buf, window.map + skip,
						   size))) {
			bytes += size;
			reads++;
		} else if (size == 0) {
			continue;
		} else if (fm_vector_move_window(memory, &window, buf, item[0],
						 size, vector->physical)) {
			bytes += size;
			reads++;
		} else {
			read->nr_left = vector->nr - i;
			ret = fm_vector_read_slow(read, buf, i);
		}
	}
	fm_counter_add(&memory->counters.fast_reads, reads);
	fm_counter_add(&memory->counters.bytes, bytes);
	read->bytes_since_asked += bytes;
	return ret;
}

static int fm_vector_read_items(struct fm_vector_read *read)
{
	const struct fm_vector *vector = read->vector;
	unsigned char *out = vector->out;
	int ret = 0;

	for (size_t i = 0; i < vector->nr && !ret;
	     i += FM_MEMORY_CHECK_INTERVAL) {
		size_t end =
			fm_min_u64(vector->nr, i + FM_MEMORY_CHECK_INTERVAL);

		/* The stride is a constant in each. */
		ret = vector->stride == 1 ?
			      fm_vector_read_stretch(read, i, end, 1, &out) :
			      fm_vector_read_stretch(read, i, end, 2, &out);
		if (!ret && end < vector->nr) {
			fm_memory_check(read->memory);
			ret = fm_vector_check(read, 0);
		}
	}
	return ret;
}

/*
 * Copy what the cache has of a range into buf. Returns how many of its bytes
 * that is, and in *pages the range of the whole pages that it touches; *pages
 * has size 0 if no file is so long.
 */
static size_t fm_vector_find(struct fm_memory *memory,
			     const struct fm_planner_range *range,
			     unsigned char *buf, struct fm_planner_range *pages)
{
	size_t done = 0, found = 0;

	*pages = (struct fm_planner_range){ .piece = range->piece };
	while (done < range->size) {
		struct fm_memory_page page;
		size_t skip, n;

		if (!fm_memory_page_of(range->piece, range->address + done,
				       &page)) {
			pages->size = 0;
			return 0;
		}
		if (done == 0)
			pages->address = page.first;
		pages->size = page.first - pages->address + page.size;
		skip = range->address + done - page.first;
		n = fm_min_u64(range->size - done, page.size - skip);
		if (fm_page_cache_find(&memory->cache, page.offset, skip,
				       buf + done, n)) {
			fm_counter_add(&memory->counters.cache_hits, 1);
			found += n;
		}
		done += n;
	}
	return found;
}

/* Hand out what the cache has, and have whole pages read for the rest. */
static int fm_vector_use_cache(struct fm_vector_read *read)
{
	struct fm_memory *memory = read->memory;
	size_t nr = 0;

	if (!fm_page_cache_is_on(&memory->cache))
		return 0;
	/* A batch of more would only push out all that is there. */
	read->fills_cache = fm_page_cache_in_snapshot(&memory->cache) ||
			    read->nr_pending <= FM_PAGE_CACHE_NR_PAGES / 2;
	for (size_t i = 0; i < read->nr_pending; i++) {
		struct fm_vector_pending pending = read->pending[i];
		struct fm_planner_range range = read->ranges[i], pages;
		size_t found =
			fm_vector_find(memory, &range, pending.buf, &pages);
		int ret;

		if (found == range.size) {
			fm_memory_count_reads(memory, 1, range.size);
			continue;
		}
		/* Some of its pages are there: alone it has only the others
		 * read. */
		if (found) {
			ret = fm_vector_read_single(read, pending.buf,
						    pending.at);
			if (ret)
				return ret;
			continue;
		}
		if (pages.size && read->fills_cache) {
			pending.skip = range.address - pages.address;
			range = pages;
		}
		read->pending[nr] = pending;
		read->ranges[nr++] = range;
	}
	read->nr_pending = nr;
	return 0;
}

/* The bytes of a run are in buf, as many as n: keep the pages of its ranges.
 * Returns how many bytes of them are kept, or were not to be. */
static size_t fm_vector_keep(struct fm_vector_read *read,
			     const struct fm_planner *planner,
			     const struct fm_planner_run *run,
			     struct fm_page_cache_ticket ticket,
			     unsigned char *buf, size_t n)
{
	struct fm_memory *memory = read->memory;
	size_t done = 0;

	for (size_t i = run->first; i < run->first + run->nr; i++) {
		const struct fm_planner_range *range =
			&planner->ranges[fm_planner_at(planner, i)];
		size_t end = range->address - run->address + range->size;

		/* What the range before had of it is done. */
		if (done < range->address - run->address)
			done = range->address - run->address;
		while (done < end) {
			struct fm_memory_page page;

			if (!fm_memory_page_of(run->piece, run->address + done,
					       &page) ||
			    page.first != run->address + done ||
			    page.size > n - done)
				return done;
			if (!fm_page_cache_insert(&memory->cache, ticket,
						  page.offset, buf + done,
						  page.size))
				return done;
			fm_counter_add(&memory->counters.cache_misses, 1);
			done += page.size;
		}
	}
	return n;
}

/* Hand out a run of which n bytes are in buf; what needs more of it is read
 * alone. */
static int fm_vector_scatter(struct fm_vector_read *read,
			     const struct fm_planner *planner,
			     const struct fm_planner_run *run,
			     const unsigned char *buf, size_t n)
{
	uint64_t reads = 0, bytes = 0;
	int ret = 0;

	for (size_t i = run->first; i < run->first + run->nr && !ret; i++) {
		size_t at = fm_planner_at(planner, i);
		const struct fm_vector_pending *pending = &read->pending[at];
		size_t size = fm_vector_size(read->vector, pending->at);
		size_t skip = planner->ranges[at].address - run->address +
			      pending->skip;

		if (!pending->buf)
			continue;
		if (FM_UNLIKELY(skip + size > n)) {
			ret = fm_vector_read_single(read, pending->buf,
						    pending->at);
			continue;
		}
		memcpy(pending->buf, buf + skip, size);
		bytes += size;
		reads++;
	}
	fm_memory_count_reads(read->memory, reads, bytes);
	if (run->nr > 1)
		fm_counter_add(&read->memory->counters.coalesced, reads);
	return ret;
}

static int fm_vector_read_run(struct fm_vector_read *read,
			      const struct fm_planner *planner,
			      const struct fm_planner_run *run,
			      unsigned char *buf)
{
	struct fm_memory *memory = read->memory;
	struct fm_page_cache_ticket ticket =
		fm_page_cache_begin_read(&memory->cache);
	struct fm_error ignored;
	size_t n = fm_memory_read_source(memory, run->piece, buf, run->address,
					 run->size, &ignored);

	fm_counter_add(&memory->counters.gap_bytes, run->gap_bytes);
	if (read->fills_cache)
		n = fm_vector_keep(read, planner, run, ticket, buf, n);
	return fm_vector_scatter(read, planner, run, buf, n);
}

static int fm_vector_read_runs(struct fm_vector_read *read,
			       struct fm_planner *planner)
{
	FM_AUTO_FREE unsigned char *buf = NULL;
	struct fm_planner_run run;
	size_t capacity = 0;

	while (fm_planner_next(planner, &run)) {
		int ret;

		if (run.size > capacity) {
			free(buf);
			capacity = run.size < FM_PLANNER_MAX_RUN / 16 ?
					   FM_PLANNER_MAX_RUN / 16 :
					   FM_PLANNER_MAX_RUN;
			if (run.size > capacity)
				capacity = run.size;
			buf = malloc(capacity);
			if (!buf)
				return fm_error_no_memory(read->err);
		}
		ret = fm_vector_read_run(read, planner, &run, buf);
		if (!ret)
			ret = fm_vector_check(read, run.size);
		if (ret)
			return ret;
	}
	return 0;
}

static int fm_vector_read_pending(struct fm_vector_read *read)
{
	struct fm_planner planner;
	int ret;

	if (!read->nr_pending)
		return 0;
	if (fm_planner_init(&planner, read->ranges, read->nr_pending,
			    read->memory->core.is_kcore, read->err))
		return -1;
	ret = fm_vector_read_runs(read, &planner);
	fm_planner_deinit(&planner);
	return ret;
}

static void fm_vector_read_init(struct fm_vector_read *read,
				struct fm_memory *memory,
				struct fm_vector *vector, struct fm_error *err)
{
	*read = (struct fm_vector_read){
		.memory = memory,
		.vector = vector,
		.err = err,
	};
	if (vector->go_on)
		clock_gettime(CLOCK_MONOTONIC_COARSE, &read->asked);
}

static void fm_vector_read_deinit(struct fm_vector_read *read)
{
	free(read->pending);
	free(read->ranges);
}

int fm_memory_read_vector(struct fm_memory *memory, struct fm_vector *vector,
			  struct fm_error *err)
{
	struct fm_vector_read read;
	int ret;

	vector->faults = NULL;
	vector->nr_faults = 0;
	fm_vector_read_init(&read, memory, vector, err);
	ret = fm_vector_read_items(&read);
	if (!ret)
		ret = fm_vector_use_cache(&read);
	if (!ret)
		ret = fm_vector_read_pending(&read);
	fm_vector_read_deinit(&read);
	return ret;
}

/* Have the page of address read, if it is not there. */
static int fm_vector_prefetch_page(struct fm_vector_read *read,
				   uint64_t address)
{
	struct fm_memory *memory = read->memory;
	struct fm_planner_range range;
	struct fm_memory_page page;
	unsigned char unused;

	if (!fm_vector_locate(memory, address, 1, read->vector->physical,
			      &range) ||
	    !fm_memory_page_of(range.piece, range.address, &page) ||
	    fm_page_cache_find(&memory->cache, page.offset, page.size, &unused,
			       0))
		return 0;
	range.address = page.first;
	range.size = page.size;
	return fm_vector_add(read, NULL, 0, &range);
}

int fm_memory_prefetch(struct fm_memory *memory, const struct fm_vector *vector,
		       struct fm_error *err)
{
	struct fm_vector copy = *vector;
	struct fm_vector_read read;
	/* Pages that may be looked at. */
	size_t room = fm_page_cache_in_snapshot(&memory->cache) ?
			      FM_PAGE_CACHE_SNAPSHOT_NR_PAGES :
			      FM_PAGE_CACHE_NR_PAGES;
	int ret = 0;

	if (!fm_page_cache_is_on(&memory->cache))
		return 0;
	fm_vector_read_init(&read, memory, &copy, err);
	read.fills_cache = true;
	for (size_t i = 0; i < copy.nr && room && !ret; i++) {
		uint64_t address = fm_vector_address(&copy, i);
		uint64_t size = fm_vector_size(&copy, i);

		while (size && room && !ret) {
			uint64_t n = FM_MEMORY_PAGE_SIZE -
				     address % FM_MEMORY_PAGE_SIZE;

			read.nr_left = FM_VECTOR_PREFETCH_STEP;
			ret = fm_vector_prefetch_page(
				&read, fm_memory_normalize(memory, address));
			room--;
			address += n;
			size -= fm_min_u64(size, n);
		}
	}
	if (!ret)
		ret = fm_vector_read_pending(&read);
	fm_vector_read_deinit(&read);
	return ret;
}
