// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* Which ranges are read together. */

#include "planner.h"
#include "test.h"

enum { MAX_RANGES = 20000 };

static const struct fm_piece pieces[2] = {
	{ .first = 0, .last = UINT64_MAX / 2, .file_size = UINT64_MAX / 2 + 1 },
	{ .first = UINT64_MAX / 2 + 1, .last = UINT64_MAX },
};
static struct fm_planner_range ranges[MAX_RANGES];

/* "address+size ...", in hexadecimal; a "!" before one puts it into the other
 * piece. */
static size_t ranges_of(const char *text)
{
	unsigned long long address, size;
	size_t nr = 0;
	int used;

	while (*text == ' ')
		text++;
	while (*text) {
		bool other = *text == '!';

		text += other;
		REQUIRE(sscanf(text, "%llx+%llx%n", &address, &size, &used) ==
			2);
		REQUIRE(nr < MAX_RANGES);
		ranges[nr++] = (struct fm_planner_range){
			.address = address,
			.piece = &pieces[other],
			.size = size,
		};
		text += used;
		while (*text == ' ')
			text++;
	}
	return nr;
}

/* The runs as text: "address+size:number of ranges(gap bytes) ...". */
static const char *plan(const char *text, bool is_live)
{
	static char result[4096];
	struct fm_planner planner;
	struct fm_planner_run run;
	struct fm_error err;
	char *p = result;

	*p = '\0';
	REQUIRE(!fm_planner_init(&planner, ranges, ranges_of(text), is_live,
				 &err));
	while (fm_planner_next(&planner, &run))
		p += sprintf(p, "%s%llx+%zx:%zu(%zx)", p == result ? "" : " ",
			     (unsigned long long)run.address, run.size, run.nr,
			     run.gap_bytes);
	fm_planner_deinit(&planner);
	return result;
}

#define CHECK_PLAN(text, is_live, expected)                                    \
	do {                                                                   \
		const char *plan_ = plan(text, is_live);                       \
                                                                               \
		if (strcmp(plan_, expected)) {                                 \
			fprintf(stderr, "%s:%d: the plan is %s\n", __FILE__,   \
				__LINE__, plan_);                              \
			test_failed_ = true;                                   \
		}                                                              \
	} while (0)

static void test_neighbours_in_any_order(void)
{
	CHECK_PLAN("", false, "");
	CHECK_PLAN("1000+8", false, "1000+8:1(0)");
	CHECK_PLAN("1000+8 1010+8", false, "1000+18:2(8)");
	CHECK_PLAN("1010+8 1000+8", false, "1000+18:2(8)");
	CHECK_PLAN("1000+8 1008+8", false, "1000+10:2(0)");
	CHECK_PLAN("1000+8 1000+8 1000+4", false, "1000+8:3(0)");
	CHECK_PLAN("1000+100 1010+8 1020+8 1100+8", false, "1000+108:4(0)");
	CHECK_PLAN("1020+8 1000+100 1200+8", false, "1000+208:3(100)");
}

static void test_gaps_up_to_the_limit(void)
{
	CHECK_PLAN("1000+8 2008+8", false, "1000+1010:2(1000)");
	CHECK_PLAN("1000+8 2009+8", false, "1000+8:1(0) 2009+8:1(0)");
}

static void test_two_pieces(void)
{
	CHECK_PLAN("1000+8 !1008+8", false, "1000+8:1(0) 1008+8:1(0)");
	CHECK_PLAN("!fffffffffffffff8+8 !fffffffffffffff0+1", false,
		   "fffffffffffffff0+10:2(7)");
}

static void test_a_live_kernel(void)
{
	/* The next page is asked for itself. */
	CHECK_PLAN("1000+8 2000+8", true, "1000+1008:2(ff8)");
	CHECK_PLAN("1ff8+8 3000+8", false, "1ff8+1010:2(1000)");
	/* There is a page between. */
	CHECK_PLAN("1ff8+8 3000+8", true, "1ff8+8:1(0) 3000+8:1(0)");
	CHECK_PLAN("1ff8+8 2ff8+8 3000+8", true, "1ff8+1010:3(ff8)");
	CHECK_PLAN("1ff8+9 3000+8", true, "1ff8+1010:2(fff)");
}

static void test_long_runs(void)
{
	struct fm_planner planner;
	struct fm_planner_run run;
	struct fm_error err;
	size_t nr = 0;

	/* One is longer than a run; what lies in it goes with it only as far
	 * as a run is allowed to be. */
	CHECK_PLAN("1000+fffff 2000+8 101000+8", false,
		   "1000+fffff:2(0) 101000+8:1(0)");
	for (size_t i = 0; i < MAX_RANGES; i++)
		ranges[i] = (struct fm_planner_range){
			.address = i * 0x800,
			.piece = &pieces[0],
			.size = 8,
		};
	REQUIRE(!fm_planner_init(&planner, ranges, MAX_RANGES, true, &err));
	while (fm_planner_next(&planner, &run)) {
		CHECK(run.size <= FM_PLANNER_MAX_RUN);
		CHECK_EQUAL(run.first, nr);
		nr += run.nr;
	}
	CHECK_EQUAL(nr, MAX_RANGES);
	fm_planner_deinit(&planner);
}

/* The invariants that planner.c opens with, for ranges of all sorts. */
static void check_invariants(uint64_t *state, size_t nr, uint64_t spread,
			     bool is_live)
{
	struct fm_planner planner;
	struct fm_planner_run run;
	struct fm_error err;
	size_t seen = 0;
	uint64_t before = 0;

	for (size_t i = 0; i < nr; i++)
		ranges[i] = (struct fm_planner_range){
			.address = test_random(state) % spread,
			.piece = &pieces[test_random(state) % 8 == 0],
			.size = 1 + test_random(state) % 300,
		};
	REQUIRE(!fm_planner_init(&planner, ranges, nr, is_live, &err));
	while (fm_planner_next(&planner, &run)) {
		uint64_t end = run.address;

		CHECK_EQUAL(run.first, seen);
		CHECK(run.address >= before);
		before = run.address;
		for (size_t i = run.first; i < run.first + run.nr; i++) {
			const struct fm_planner_range *range =
				&ranges[fm_planner_at(&planner, i)];

			CHECK(range->piece == run.piece);
			CHECK(range->address >= run.address);
			CHECK(range->address + range->size <=
			      run.address + run.size);
			if (range->address > end) {
				CHECK(range->address - end <=
				      FM_PLANNER_MAX_GAP);
				CHECK(!is_live || range->address / 4096 <=
							  (end - 1) / 4096 + 1);
			}
			if (end < range->address + range->size)
				end = range->address + range->size;
		}
		CHECK_EQUAL(end, run.address + run.size);
		seen += run.nr;
	}
	CHECK_EQUAL(seen, nr);
	fm_planner_deinit(&planner);
}

static void test_random_ranges(void)
{
	static const uint64_t spreads[] = { 1 << 12, 1 << 20, 1 << 30,
					    UINT64_C(1) << 62 };
	uint64_t state = 1;

	for (size_t i = 0; i < 400; i++)
		check_invariants(&state, test_random(&state) % 300,
				 spreads[i % 4], i % 3 == 0);
	check_invariants(&state, MAX_RANGES, 1 << 24, false);
	check_invariants(&state, MAX_RANGES, 1 << 24, true);
}

static const struct test_case cases[] = {
	{ "neighbours in any order", test_neighbours_in_any_order },
	{ "gaps up to the limit", test_gaps_up_to_the_limit },
	{ "two pieces", test_two_pieces },
	{ "a live kernel", test_a_live_kernel },
	{ "long runs", test_long_runs },
	{ "random ranges", test_random_ranges },
};

TEST_MAIN("test_planner", cases)
