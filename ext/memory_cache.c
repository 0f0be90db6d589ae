// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Reads through the page cache, and what decides how old its pages may be.
 * Does not keep pages (page_cache.c). Built for fields of a few bytes on
 * targets that are not mapped: one pread for all that is asked of a page.
 */

#include <string.h>

#include "memory_internal.h"

/* Read count bytes from skip on of a page that the cache does not have. Returns
 * how many leading ones were read. */
static size_t fm_memory_read_page(struct fm_memory *memory,
				  const struct fm_piece *piece,
				  const struct fm_memory_page *page,
				  size_t skip, char *buf, size_t count,
				  struct fm_error *err)
{
	struct fm_page_cache_ticket ticket =
		fm_page_cache_begin_read(&memory->cache);
	unsigned char bytes[FM_MEMORY_PAGE_SIZE];
	size_t size = fm_memory_read_source(memory, piece, bytes, page->first,
					    page->size, err);

	/* What was asked for may be readable where the rest of its page is
	 * not: then the answer is that of a read of just that. */
	if (size < skip + count)
		return fm_memory_read_source(memory, piece, buf,
					     page->first + skip, count, err);
	if (!fm_page_cache_insert(&memory->cache, ticket, page->offset, bytes,
				  size)) {
		fm_error_fault(err, FM_FAULT_FULL, page->first + skip, 0);
		return 0;
	}
	memcpy(buf, bytes + skip, count);
	return count;
}

size_t fm_memory_read_cached(struct fm_memory *memory,
			     const struct fm_piece *piece, void *buf,
			     uint64_t address, size_t count,
			     struct fm_error *err)
{
	size_t done = 0;

	while (done < count) {
		struct fm_memory_page page;
		size_t skip, n, got;

		if (!fm_memory_page_of(piece, address + done, &page))
			return done + fm_memory_read_source(memory, piece,
							    (char *)buf + done,
							    address + done,
							    count - done, err);
		skip = address + done - page.first;
		n = fm_min_u64(count - done, page.size - skip);
		if (fm_page_cache_find(&memory->cache, page.offset, skip,
				       (char *)buf + done, n)) {
			fm_counter_add(&memory->counters.cache_hits, 1);
			done += n;
			continue;
		}
		fm_counter_add(&memory->counters.cache_misses, 1);
		got = fm_memory_read_page(memory, piece, &page, skip,
					  (char *)buf + done, n, err);
		done += got;
		if (got < n)
			break;
	}
	return done;
}

void fm_memory_set_max_age(struct fm_memory *memory, uint64_t max_age)
{
	fm_page_cache_set_max_age(&memory->cache, max_age);
}

uint64_t fm_memory_max_age(const struct fm_memory *memory)
{
	return __atomic_load_n(&memory->cache.max_age, __ATOMIC_RELAXED);
}

void fm_memory_invalidate(struct fm_memory *memory)
{
	fm_page_cache_invalidate(&memory->cache);
}

int fm_memory_begin_snapshot(struct fm_memory *memory, struct fm_error *err)
{
	return fm_page_cache_begin_snapshot(&memory->cache, err);
}

void fm_memory_end_snapshot(struct fm_memory *memory)
{
	fm_page_cache_end_snapshot(&memory->cache);
}
