/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Remembers pages of a source that were read, for as long as somebody allowed.
 *
 * A page is what one segment has in the file of one page of the address space:
 * at most FM_PAGE_CACHE_PAGE_SIZE bytes, found by the offset of its first byte.
 * The cache does not read and does not know addresses: who misses reads the
 * page and inserts it. Removable: without it every read goes to the source.
 *
 * Two tables. The one for reads with a maximum age has a fixed number of pages
 * and evicts. The one of a snapshot keeps each page until the snapshot ends,
 * and refuses when it is full. A process that was forked begins with both
 * empty.
 *
 * Ages are in nanoseconds. Thread rule: any thread may call everything but init
 * and deinit at any time.
 */

#ifndef FM_PAGE_CACHE_H
#define FM_PAGE_CACHE_H

#include <pthread.h>
#include <time.h>

#include "error.h"
#include "util.h"

#define FM_PAGE_CACHE_PAGE_SIZE 4096
#define FM_PAGE_CACHE_NR_PAGES 1024
/* 1 GiB of address space, of which what is used becomes memory. */
#define FM_PAGE_CACHE_SNAPSHOT_NR_PAGES (1 << 18)

/* No age is too old. */
#define FM_PAGE_CACHE_ANY_AGE UINT64_MAX

struct fm_page_cache_slot;

/* One mapping, all zeros when it is empty. */
struct fm_page_cache_table {
	/* NULL if there is no table. */
	void *mapping;
	size_t mapping_size;
	/* In the mapping. */
	struct fm_page_cache_state *state;
	uint32_t *buckets;
	struct fm_page_cache_slot *slots;
	unsigned char *pages;
	uint32_t nr_slots;
	/* log2 of the number of buckets. */
	unsigned int bucket_bits;
};

struct fm_page_cache {
	/* Read without the lock. */
	uint64_t max_age;
	unsigned int snapshot_depth;
	clockid_t clock;

	/* In a page that fork empties, so that a child never finds it held. */
	pthread_mutex_t *mutex;
	/* What follows is protected by the mutex. Pages of an earlier
	 * generation are not to be found any more. */
	uint64_t generation;
	struct fm_page_cache_table aged, snapshot;
};

/* The page that is about to be read. */
struct fm_page_cache_ticket {
	uint64_t stamp, generation;
};

/* With a max_age of 0. */
int fm_page_cache_init(struct fm_page_cache *cache, struct fm_error *err);
void fm_page_cache_deinit(struct fm_page_cache *cache);

/* Whether anything would be found or kept; if not, find and insert need not be
 * called. */
static inline bool fm_page_cache_is_on(const struct fm_page_cache *cache)
{
	return __atomic_load_n(&cache->max_age, __ATOMIC_RELAXED) ||
	       __atomic_load_n(&cache->snapshot_depth, __ATOMIC_RELAXED);
}

static inline bool fm_page_cache_in_snapshot(const struct fm_page_cache *cache)
{
	return __atomic_load_n(&cache->snapshot_depth, __ATOMIC_RELAXED);
}

/* Changes whenever everything is forgotten. */
static inline uint64_t
fm_page_cache_generation(const struct fm_page_cache *cache)
{
	return __atomic_load_n(&cache->generation, __ATOMIC_ACQUIRE);
}

/*
 * Bytes that find gives out were read at most this long before, plus one step
 * of the clock (clock_getres(2)): where the step of CLOCK_MONOTONIC_COARSE,
 * usually 4 ms, is at most half the age that clock is used, else
 * CLOCK_MONOTONIC. 0 forgets everything, but for what a snapshot keeps.
 */
void fm_page_cache_set_max_age(struct fm_page_cache *cache, uint64_t max_age);

/* Forget everything: what find gives out from here on is read after this call.
 * A snapshot begins anew. */
void fm_page_cache_invalidate(struct fm_page_cache *cache);

/*
 * From the first begin to the end that belongs to it, a page that was inserted
 * stays as it is; then everything is forgotten. An end too many does nothing.
 */
int fm_page_cache_begin_snapshot(struct fm_page_cache *cache,
				 struct fm_error *err);
void fm_page_cache_end_snapshot(struct fm_page_cache *cache);

/* Copy count bytes, from skip on, of the page at offset into buf; false if they
 * are not there or too old. */
bool fm_page_cache_find(struct fm_page_cache *cache, uint64_t offset,
			size_t skip, void *buf, size_t count);

/* Call it before the page is read: that is the time that its age counts from.
 */
struct fm_page_cache_ticket
fm_page_cache_begin_read(struct fm_page_cache *cache);

/*
 * The first size bytes of the page at offset were read, into page. Keeps a
 * copy. In a snapshot in which the page is already, page becomes what the
 * snapshot has of it. False, with page as it was, if a snapshot has no room.
 */
bool fm_page_cache_insert(struct fm_page_cache *cache,
			  struct fm_page_cache_ticket ticket, uint64_t offset,
			  void *page, size_t size);

#endif /* FM_PAGE_CACHE_H */
