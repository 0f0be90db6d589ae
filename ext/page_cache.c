// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Hash tables of pages with chains, and a clock hand for eviction.
 * Does not read. Built for hits of 8 bytes: a lock, a short chain, a copy.
 *
 * Invariants, whenever the lock is free:
 *
 * 1. Slots 0 to nr_used - 1 hold a page each, and each is in the chain of its
 *    offset's bucket, once. No two have the same offset.
 * 2. A slot's stamp is a time before the first byte of its page was read, and
 *    its generation is that of the cache at that time.
 * 3. A slot of another generation than the cache's is never given out. It is
 *    filled anew when its offset is inserted, or evicted.
 * 4. In a snapshot's table, the bytes of a slot of the present generation never
 *    change; there may come to be more of them, if the file grew.
 * 5. A table of zeros is an empty one, and a mutex of zeros is one that is not
 *    held (PTHREAD_MUTEX_INITIALIZER of glibc and musl). That is what a fork
 *    leaves the child (MADV_WIPEONFORK, madvise(2), Linux 4.14): another thread
 *    may have been in the middle of a change.
 */

#include <string.h>
#include <sys/mman.h>

#include "page_cache.h"

/* Positions in slots are kept plus one, so that 0 is none. */
struct fm_page_cache_slot {
	uint64_t offset, stamp, generation;
	uint32_t next;
	uint16_t size;
	/* Found since the hand came by. */
	bool referenced;
};

struct fm_page_cache_state {
	uint32_t nr_used;
	/* The slot that is looked at next when one has to go. */
	uint32_t hand;
};

/* Zeros, and again zeros in the child of a fork. */
static void *fm_page_cache_map(size_t size, struct fm_error *err)
{
	void *mapping =
		mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mapping == MAP_FAILED) {
		fm_error_no_memory(err);
		return NULL;
	}
	/* Older kernels refuse. There a process must not fork while one of its
	 * threads reads. */
	(void)madvise(mapping, size, MADV_WIPEONFORK);
	/* A core file of this process must not hold a copy of another's. */
	(void)madvise(mapping, size, MADV_DONTDUMP);
	return mapping;
}

/* nr_slots is a power of two. */
static int fm_page_cache_table_init(struct fm_page_cache_table *table,
				    uint32_t nr_slots, struct fm_error *err)
{
	/* Pages first, because they are aligned. */
	size_t pages_size = (size_t)nr_slots * FM_PAGE_CACHE_PAGE_SIZE;
	size_t slots_size = nr_slots * sizeof(*table->slots);
	size_t buckets_size = nr_slots * sizeof(*table->buckets);
	size_t size =
		pages_size + slots_size + buckets_size + sizeof(*table->state);
	unsigned char *p = fm_page_cache_map(size, err);

	if (!p)
		return -1;
	table->mapping_size = size;
	table->nr_slots = nr_slots;
	table->bucket_bits = __builtin_ctz(nr_slots);
	table->pages = p;
	table->slots = (void *)(p + pages_size);
	table->buckets = (void *)(p + pages_size + slots_size);
	table->state = (void *)(p + pages_size + slots_size + buckets_size);
	/* Last: a fork may come between any two of these. */
	__atomic_store_n(&table->mapping, p, __ATOMIC_RELEASE);
	return 0;
}

/* A table that is not there is allowed. */
static void fm_page_cache_table_deinit(struct fm_page_cache_table *table)
{
	void *mapping = table->mapping;

	__atomic_store_n(&table->mapping, NULL, __ATOMIC_RELEASE);
	if (mapping)
		munmap(mapping, table->mapping_size);
}

static uint32_t *
fm_page_cache_table_bucket(const struct fm_page_cache_table *table,
			   uint64_t offset)
{
	/* Offsets are multiples of the page size, or differ from one by the
	 * same in a whole segment. Fibonacci hashing: Knuth, The Art of
	 * Computer Programming, volume 3, 6.4. */
	uint64_t hash = (offset / FM_PAGE_CACHE_PAGE_SIZE) *
			UINT64_C(0x9e3779b97f4a7c15);

	return &table->buckets[hash >> (64 - table->bucket_bits)];
}

static unsigned char *
fm_page_cache_table_page(const struct fm_page_cache_table *table,
			 const struct fm_page_cache_slot *slot)
{
	return table->pages +
	       (size_t)(slot - table->slots) * FM_PAGE_CACHE_PAGE_SIZE;
}

static struct fm_page_cache_slot *
fm_page_cache_table_find(const struct fm_page_cache_table *table,
			 uint64_t offset)
{
	for (uint32_t at = *fm_page_cache_table_bucket(table, offset); at;) {
		struct fm_page_cache_slot *slot = &table->slots[at - 1];

		if (slot->offset == offset)
			return slot;
		at = slot->next;
	}
	return NULL;
}

static void fm_page_cache_table_unlink(struct fm_page_cache_table *table,
				       struct fm_page_cache_slot *slot)
{
	uint32_t *link = fm_page_cache_table_bucket(table, slot->offset);

	while (*link != slot - table->slots + 1)
		link = &table->slots[*link - 1].next;
	*link = slot->next;
}

/* A slot that has to go; it is in no chain any more. */
static struct fm_page_cache_slot *
fm_page_cache_table_evict(struct fm_page_cache_table *table,
			  uint64_t generation)
{
	struct fm_page_cache_slot *slot;

	for (;;) {
		slot = &table->slots[table->state->hand];
		table->state->hand = (table->state->hand + 1) % table->nr_slots;
		if (!slot->referenced || slot->generation != generation)
			break;
		slot->referenced = false;
	}
	fm_page_cache_table_unlink(table, slot);
	return slot;
}

/* A slot for offset, which has none; NULL if all are taken and must stay. */
static struct fm_page_cache_slot *
fm_page_cache_table_add(struct fm_page_cache_table *table, uint64_t offset,
			uint64_t generation, bool may_evict)
{
	uint32_t *bucket = fm_page_cache_table_bucket(table, offset);
	struct fm_page_cache_slot *slot;

	if (table->state->nr_used < table->nr_slots)
		slot = &table->slots[table->state->nr_used++];
	else if (may_evict)
		slot = fm_page_cache_table_evict(table, generation);
	else
		return NULL;
	slot->offset = offset;
	slot->referenced = false;
	slot->next = *bucket;
	*bucket = slot - table->slots + 1;
	return slot;
}

int fm_page_cache_init(struct fm_page_cache *cache, struct fm_error *err)
{
	memset(cache, 0, sizeof(*cache));
	cache->clock = CLOCK_MONOTONIC;
	cache->mutex = fm_page_cache_map(sizeof(*cache->mutex), err);
	return cache->mutex ? 0 : -1;
}

void fm_page_cache_deinit(struct fm_page_cache *cache)
{
	fm_page_cache_table_deinit(&cache->aged);
	fm_page_cache_table_deinit(&cache->snapshot);
	/* No pthread_mutex_destroy: it has nothing to free, and a child that
	 * was forked while it was held has another in its place. */
	if (cache->mutex)
		munmap(cache->mutex, sizeof(*cache->mutex));
}

static void fm_page_cache_lock(struct fm_page_cache *cache)
{
	pthread_mutex_lock(cache->mutex);
}

static void fm_page_cache_unlock(struct fm_page_cache *cache)
{
	pthread_mutex_unlock(cache->mutex);
}

static uint64_t fm_page_cache_nanoseconds(const struct timespec *time)
{
	return (uint64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* 0 where nobody asks for ages. */
static uint64_t fm_page_cache_now(const struct fm_page_cache *cache)
{
	uint64_t max_age = __atomic_load_n(&cache->max_age, __ATOMIC_RELAXED);
	struct timespec now;

	if (max_age == FM_PAGE_CACHE_ANY_AGE ||
	    fm_page_cache_in_snapshot(cache))
		return 0;
	clock_gettime(__atomic_load_n(&cache->clock, __ATOMIC_RELAXED), &now);
	return fm_page_cache_nanoseconds(&now);
}

/*
 * A hit with the coarse clock takes 5.5 ns, with the other 25. The coarse one
 * is late by up to a step (vdso, kernel/time/vsyscall.c), so with a step of
 * more than half the age that was asked for the promise would mean little.
 */
static clockid_t fm_page_cache_choose_clock(uint64_t max_age)
{
	struct timespec step;

	if (!clock_getres(CLOCK_MONOTONIC_COARSE, &step) &&
	    fm_page_cache_nanoseconds(&step) <= max_age / 2)
		return CLOCK_MONOTONIC_COARSE;
	return CLOCK_MONOTONIC;
}

/* Under the lock. */
static void fm_page_cache_forget(struct fm_page_cache *cache)
{
	__atomic_store_n(&cache->generation, cache->generation + 1,
			 __ATOMIC_RELEASE);
}

void fm_page_cache_set_max_age(struct fm_page_cache *cache, uint64_t max_age)
{
	clockid_t clock = fm_page_cache_choose_clock(max_age);

	fm_page_cache_lock(cache);
	__atomic_store_n(&cache->clock, clock, __ATOMIC_RELAXED);
	__atomic_store_n(&cache->max_age, max_age, __ATOMIC_RELAXED);
	if (max_age == 0)
		fm_page_cache_table_deinit(&cache->aged);
	fm_page_cache_unlock(cache);
}

void fm_page_cache_invalidate(struct fm_page_cache *cache)
{
	fm_page_cache_lock(cache);
	fm_page_cache_forget(cache);
	fm_page_cache_unlock(cache);
}

/* As much as there is address space for. */
static int fm_page_cache_snapshot_init(struct fm_page_cache *cache,
				       struct fm_error *err)
{
	uint32_t nr_slots = FM_PAGE_CACHE_SNAPSHOT_NR_PAGES;

	while (fm_page_cache_table_init(&cache->snapshot, nr_slots, err)) {
		nr_slots /= 2;
		if (nr_slots < FM_PAGE_CACHE_NR_PAGES)
			return -1;
	}
	return 0;
}

int fm_page_cache_begin_snapshot(struct fm_page_cache *cache,
				 struct fm_error *err)
{
	int ret = 0;

	fm_page_cache_lock(cache);
	if (!cache->snapshot_depth) {
		ret = fm_page_cache_snapshot_init(cache, err);
		/* What other threads are reading now is from before it. */
		fm_page_cache_forget(cache);
	}
	if (!ret)
		__atomic_store_n(&cache->snapshot_depth,
				 cache->snapshot_depth + 1, __ATOMIC_RELEASE);
	fm_page_cache_unlock(cache);
	return ret;
}

void fm_page_cache_end_snapshot(struct fm_page_cache *cache)
{
	fm_page_cache_lock(cache);
	if (cache->snapshot_depth) {
		__atomic_store_n(&cache->snapshot_depth,
				 cache->snapshot_depth - 1, __ATOMIC_RELEASE);
		if (!cache->snapshot_depth) {
			fm_page_cache_table_deinit(&cache->snapshot);
			fm_page_cache_forget(cache);
		}
	}
	fm_page_cache_unlock(cache);
}

/* The table that is in use; under the lock. */
static struct fm_page_cache_table *
fm_page_cache_table(struct fm_page_cache *cache)
{
	return cache->snapshot_depth ? &cache->snapshot : &cache->aged;
}

static bool fm_page_cache_is_fresh(const struct fm_page_cache *cache,
				   const struct fm_page_cache_slot *slot,
				   uint64_t now)
{
	uint64_t max_age = __atomic_load_n(&cache->max_age, __ATOMIC_RELAXED);

	if (slot->generation != cache->generation)
		return false;
	if (cache->snapshot_depth || max_age == FM_PAGE_CACHE_ANY_AGE)
		return true;
	/* No age was asked for when the page was read, or when find looked at
	 * the clock. */
	if (!slot->stamp || !now)
		return false;
	/* A stamp of the fine clock may be ahead of the coarse one. */
	return now <= slot->stamp || now - slot->stamp <= max_age;
}

bool fm_page_cache_find(struct fm_page_cache *cache, uint64_t offset,
			size_t skip, void *buf, size_t count)
{
	uint64_t now = fm_page_cache_now(cache);
	struct fm_page_cache_table *table;
	struct fm_page_cache_slot *slot = NULL;
	bool found;

	fm_page_cache_lock(cache);
	table = fm_page_cache_table(cache);
	if (table->mapping)
		slot = fm_page_cache_table_find(table, offset);
	found = slot && skip + count <= slot->size &&
		fm_page_cache_is_fresh(cache, slot, now);
	if (found) {
		memcpy(buf, fm_page_cache_table_page(table, slot) + skip,
		       count);
		slot->referenced = true;
	}
	fm_page_cache_unlock(cache);
	return found;
}

struct fm_page_cache_ticket
fm_page_cache_begin_read(struct fm_page_cache *cache)
{
	return (struct fm_page_cache_ticket){
		.stamp = fm_page_cache_now(cache),
		.generation = fm_page_cache_generation(cache),
	};
}

/* Insert into the table of a snapshot; what is there already stays. */
static bool fm_page_cache_keep(struct fm_page_cache *cache,
			       struct fm_page_cache_ticket ticket,
			       uint64_t offset, unsigned char *page,
			       size_t size)
{
	struct fm_page_cache_table *table = &cache->snapshot;
	struct fm_page_cache_slot *slot =
		fm_page_cache_table_find(table, offset);
	unsigned char *kept;
	size_t old = 0;

	if (!slot)
		slot = fm_page_cache_table_add(table, offset, cache->generation,
					       false);
	else if (slot->generation == cache->generation)
		old = slot->size;
	if (!slot)
		return false;
	kept = fm_page_cache_table_page(table, slot);
	slot->stamp = ticket.stamp;
	slot->generation = cache->generation;
	memcpy(page, kept, fm_min_u64(old, size));
	if (size > old) {
		memcpy(kept + old, page + old, size - old);
		slot->size = size;
	}
	return true;
}

/* Insert into the other table, where the newest page is the one to have. */
static void fm_page_cache_replace(struct fm_page_cache *cache,
				  struct fm_page_cache_ticket ticket,
				  uint64_t offset, const unsigned char *page,
				  size_t size)
{
	struct fm_page_cache_table *table = &cache->aged;
	struct fm_page_cache_slot *slot;
	struct fm_error ignored;

	/* Turned off meanwhile, or no memory: then it is not kept. */
	if (!cache->max_age ||
	    (!table->mapping &&
	     fm_page_cache_table_init(table, FM_PAGE_CACHE_NR_PAGES, &ignored)))
		return;
	slot = fm_page_cache_table_find(table, offset);
	if (!slot)
		slot = fm_page_cache_table_add(table, offset, cache->generation,
					       true);
	else if (slot->generation == cache->generation && ticket.stamp &&
		 slot->stamp > ticket.stamp && slot->size >= size)
		return;
	slot->stamp = ticket.stamp;
	slot->generation = cache->generation;
	slot->size = size;
	memcpy(fm_page_cache_table_page(table, slot), page, size);
}

bool fm_page_cache_insert(struct fm_page_cache *cache,
			  struct fm_page_cache_ticket ticket, uint64_t offset,
			  void *page, size_t size)
{
	bool ret = true;

	fm_page_cache_lock(cache);
	/* It was read before everything was to be forgotten. */
	if (ticket.generation == cache->generation) {
		if (cache->snapshot_depth)
			ret = fm_page_cache_keep(cache, ticket, offset, page,
						 size);
		else
			fm_page_cache_replace(cache, ticket, offset, page,
					      size);
	}
	fm_page_cache_unlock(cache);
	return ret;
}
