// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* The page cache by itself: what is found, what is kept, what has to go. */

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page_cache.h"
#include "test.h"

enum { PAGE = FM_PAGE_CACHE_PAGE_SIZE };

static void cache_of(struct fm_page_cache *cache, uint64_t max_age)
{
	struct fm_error err;

	REQUIRE(!fm_page_cache_init(cache, &err));
	fm_page_cache_set_max_age(cache, max_age);
}

static void begin_snapshot(struct fm_page_cache *cache)
{
	struct fm_error err;

	REQUIRE(!fm_page_cache_begin_snapshot(cache, &err));
}

/* Insert a page full of value; what the cache made of its first byte. */
static unsigned int insert(struct fm_page_cache *cache, uint64_t offset,
			   size_t size, unsigned char value)
{
	struct fm_page_cache_ticket ticket = fm_page_cache_begin_read(cache);
	unsigned char page[PAGE];

	memset(page, value, sizeof(page));
	if (!fm_page_cache_insert(cache, ticket, offset, page, size))
		return 1000;
	return page[0];
}

/* The byte at skip of the page at offset, 1000 if it is not there. */
static unsigned int find(struct fm_page_cache *cache, uint64_t offset,
			 size_t skip)
{
	unsigned char byte;

	return fm_page_cache_find(cache, offset, skip, &byte, 1) ? byte : 1000;
}

static void test_off(void)
{
	struct fm_page_cache cache;

	cache_of(&cache, 0);
	CHECK(!fm_page_cache_is_on(&cache));
	CHECK_EQUAL(insert(&cache, 0, PAGE, 1), 1);
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	fm_page_cache_end_snapshot(&cache);
	CHECK(!fm_page_cache_is_on(&cache));
	fm_page_cache_set_max_age(&cache, FM_PAGE_CACHE_ANY_AGE);
	CHECK(fm_page_cache_is_on(&cache));
	fm_page_cache_deinit(&cache);
}

static void test_pages_and_their_ends(void)
{
	struct fm_page_cache cache;
	unsigned char buf[16];

	cache_of(&cache, FM_PAGE_CACHE_ANY_AGE);
	insert(&cache, 0x1003, 100, 7);
	CHECK_EQUAL(find(&cache, 0x1003, 0), 7);
	CHECK_EQUAL(find(&cache, 0x1003, 99), 7);
	CHECK_EQUAL(find(&cache, 0x1003, 100), 1000);
	CHECK_EQUAL(find(&cache, 0x1000, 3), 1000);
	CHECK(fm_page_cache_find(&cache, 0x1003, 84, buf, 16));
	CHECK(!fm_page_cache_find(&cache, 0x1003, 85, buf, 16));
	/* The file grew. */
	insert(&cache, 0x1003, 200, 8);
	CHECK_EQUAL(find(&cache, 0x1003, 0), 8);
	CHECK_EQUAL(find(&cache, 0x1003, 199), 8);
	insert(&cache, UINT64_MAX - PAGE, PAGE, 9);
	CHECK_EQUAL(find(&cache, UINT64_MAX - PAGE, PAGE - 1), 9);
	fm_page_cache_deinit(&cache);
}

static void test_more_pages_than_there_are_slots(void)
{
	const uint64_t nr = 3 * FM_PAGE_CACHE_NR_PAGES;
	struct fm_page_cache cache;
	uint64_t state = 1, found = 0;

	cache_of(&cache, FM_PAGE_CACHE_ANY_AGE);
	for (uint64_t i = 0; i < 100000; i++) {
		uint64_t n = test_random(&state) % nr;
		/* Many a segment's offsets, and many segments'. */
		uint64_t offset = n * PAGE + (n % 3 << 40) + n % 3;
		unsigned int byte = find(&cache, offset, n % PAGE);

		CHECK(byte == 1000 || byte == n % 251);
		found += byte != 1000;
		if (byte == 1000)
			insert(&cache, offset, PAGE, n % 251);
		CHECK_EQUAL(find(&cache, offset, 0), n % 251);
		/* One that is used all the time stays. */
		if (i == 0)
			insert(&cache, 0x123, PAGE, 252);
		CHECK_EQUAL(find(&cache, 0x123, 0), 252);
	}
	/* A third of them fits. */
	CHECK(found > 20000 && found < 50000);
	fm_page_cache_deinit(&cache);
}

static void test_age(void)
{
	struct fm_page_cache cache;
	struct fm_page_cache_ticket early, late;
	unsigned char page[PAGE] = { 1 };

	/* Too short for the coarse clock. */
	cache_of(&cache, 100000);
	CHECK_EQUAL(cache.clock, CLOCK_MONOTONIC);
	early = fm_page_cache_begin_read(&cache);
	insert(&cache, 0, PAGE, 2);
	late = fm_page_cache_begin_read(&cache);
	CHECK(late.stamp > early.stamp);
	/* Read earlier, though it comes later. */
	fm_page_cache_set_max_age(&cache, 10 * (uint64_t)1000000000);
	CHECK_EQUAL(cache.clock, CLOCK_MONOTONIC_COARSE);
	fm_page_cache_insert(&cache, early, 0, page, PAGE);
	CHECK_EQUAL(find(&cache, 0, 0), 2);
	/* Its age counts from before it was read. */
	fm_page_cache_insert(&cache, early, PAGE, page, PAGE);
	fm_page_cache_set_max_age(&cache, 1000);
	while (fm_page_cache_begin_read(&cache).stamp <= early.stamp + 1000)
		;
	CHECK_EQUAL(find(&cache, PAGE, 0), 1000);
	/* Of unknown age. */
	fm_page_cache_set_max_age(&cache, FM_PAGE_CACHE_ANY_AGE);
	insert(&cache, 0, PAGE, 3);
	CHECK_EQUAL(find(&cache, 0, 0), 3);
	fm_page_cache_set_max_age(&cache, 3600 * (uint64_t)1000000000);
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	fm_page_cache_deinit(&cache);
}

static void test_pages_that_were_on_their_way(void)
{
	struct fm_page_cache cache;
	struct fm_page_cache_ticket ticket;
	unsigned char page[PAGE] = { 1 };

	cache_of(&cache, FM_PAGE_CACHE_ANY_AGE);
	ticket = fm_page_cache_begin_read(&cache);
	fm_page_cache_invalidate(&cache);
	CHECK(fm_page_cache_insert(&cache, ticket, 0, page, PAGE));
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	ticket = fm_page_cache_begin_read(&cache);
	begin_snapshot(&cache);
	CHECK(fm_page_cache_insert(&cache, ticket, 0, page, PAGE));
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	ticket = fm_page_cache_begin_read(&cache);
	fm_page_cache_end_snapshot(&cache);
	CHECK(fm_page_cache_insert(&cache, ticket, 0, page, PAGE));
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	fm_page_cache_deinit(&cache);
}

static void test_a_snapshot_keeps_what_came_first(void)
{
	struct fm_page_cache cache;

	cache_of(&cache, FM_PAGE_CACHE_ANY_AGE);
	insert(&cache, 0, PAGE, 1);
	begin_snapshot(&cache);
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	CHECK_EQUAL(insert(&cache, 0, 100, 2), 2);
	CHECK_EQUAL(insert(&cache, 0, 200, 3), 2);
	CHECK_EQUAL(find(&cache, 0, 99), 2);
	CHECK_EQUAL(find(&cache, 0, 100), 3);
	CHECK_EQUAL(insert(&cache, 0, 50, 4), 2);
	CHECK_EQUAL(find(&cache, 0, 199), 3);
	begin_snapshot(&cache);
	CHECK_EQUAL(find(&cache, 0, 0), 2);
	fm_page_cache_end_snapshot(&cache);
	CHECK_EQUAL(find(&cache, 0, 0), 2);
	fm_page_cache_set_max_age(&cache, 0);
	CHECK_EQUAL(find(&cache, 0, 0), 2);
	fm_page_cache_invalidate(&cache);
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	CHECK_EQUAL(insert(&cache, 0, 50, 5), 5);
	CHECK_EQUAL(find(&cache, 0, 50), 1000);
	fm_page_cache_end_snapshot(&cache);
	CHECK_EQUAL(find(&cache, 0, 0), 1000);
	CHECK(!fm_page_cache_is_on(&cache));
	fm_page_cache_deinit(&cache);
}

static void test_a_snapshot_holds_all_that_is_put_into_it(void)
{
	const unsigned int nr = 5 * FM_PAGE_CACHE_NR_PAGES;
	struct fm_page_cache cache;

	cache_of(&cache, 0);
	begin_snapshot(&cache);
	for (unsigned int i = 0; i < nr; i++)
		CHECK_EQUAL(insert(&cache, (uint64_t)i * PAGE, PAGE, i % 251),
			    i % 251);
	for (unsigned int i = 0; i < nr; i++)
		CHECK_EQUAL(find(&cache, (uint64_t)i * PAGE, 0), i % 251);
	fm_page_cache_deinit(&cache);
}

static void test_the_child_of_a_fork_begins_anew(void)
{
	struct fm_page_cache cache;
	int status;
	pid_t pid;

	cache_of(&cache, FM_PAGE_CACHE_ANY_AGE);
	insert(&cache, 0, PAGE, 1);
	/* As if another thread were in the middle of a change. */
	pthread_mutex_lock(cache.mutex);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		bool right = find(&cache, 0, 0) == 1000;

		insert(&cache, 0, PAGE, 2);
		right &= find(&cache, 0, 0) == 2;
		fm_page_cache_deinit(&cache);
		_exit(!right);
	}
	pthread_mutex_unlock(cache.mutex);
	REQUIRE(waitpid(pid, &status, 0) == pid);
	CHECK_EQUAL(status, 0);
	CHECK_EQUAL(find(&cache, 0, 0), 1);
	fm_page_cache_deinit(&cache);
}

static struct fm_page_cache shared;
static bool stop;

/* Pages are full of their number. */
static void *read_shared(void *arg)
{
	uint64_t state = (uintptr_t)arg, wrong = 0;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		uint64_t n = test_random(&state) % (2 * FM_PAGE_CACHE_NR_PAGES);
		unsigned int byte = find(&shared, n * PAGE, n % PAGE);

		if (byte == 1000)
			byte = insert(&shared, n * PAGE, PAGE, n % 251);
		wrong += byte != n % 251;
	}
	return (void *)(uintptr_t)wrong;
}

static void test_threads(void)
{
	const uint64_t ages[] = { 0, FM_PAGE_CACHE_ANY_AGE, 1000 };
	pthread_t threads[3];

	cache_of(&shared, FM_PAGE_CACHE_ANY_AGE);
	for (size_t i = 0; i < 3; i++)
		REQUIRE(!pthread_create(&threads[i], NULL, read_shared,
					(void *)(i + 1)));
	for (int i = 0; i < 300; i++) {
		fm_page_cache_set_max_age(&shared, ages[i % 3]);
		begin_snapshot(&shared);
		usleep(300);
		fm_page_cache_invalidate(&shared);
		fm_page_cache_end_snapshot(&shared);
		usleep(300);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	for (size_t i = 0; i < 3; i++) {
		void *wrong;

		REQUIRE(!pthread_join(threads[i], &wrong));
		CHECK(!wrong);
	}
	fm_page_cache_deinit(&shared);
}

static const struct test_case cases[] = {
	{ "off: nothing is kept", test_off },
	{ "pages end where they end", test_pages_and_their_ends },
	{ "more pages than slots", test_more_pages_than_there_are_slots },
	{ "an age counts from before the read", test_age },
	{ "pages on their way when all is forgotten",
	  test_pages_that_were_on_their_way },
	{ "a snapshot keeps what came first",
	  test_a_snapshot_keeps_what_came_first },
	{ "a snapshot holds all that is put into it",
	  test_a_snapshot_holds_all_that_is_put_into_it },
	{ "fork", test_the_child_of_a_fork_begins_anew },
	{ "threads", test_threads },
};

TEST_MAIN("test_page_cache", cases)
