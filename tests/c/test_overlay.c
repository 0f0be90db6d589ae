// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* The ranges that are laid over drgn's, against what they should cover. */

#include "overlay.h"
#include "source_mem.h"
#include "test.h"

#define MAX_SEGMENTS 20000

static struct fm_segment segments[MAX_SEGMENTS];

/* A memory of the first n segments, in a file of file_size bytes. */
struct made {
	struct fm_memory *memory;
	size_t n;
};

static struct made make(size_t n, uint64_t file_size, bool translates)
{
	struct made made = { calloc(1, sizeof(*made.memory)), n };
	struct fm_memory *memory = made.memory;
	struct fm_error err;

	REQUIRE(memory);
	memory->address_mask = UINT64_MAX;
	memory->translates = translates;
	memory->core.segments = segments;
	memory->core.nr_segments = n;
	REQUIRE(!fm_source_mem_create(segments, file_size, false, UINT64_MAX, 0,
				      &memory->source, &err));
	for (int physical = 0; physical < 2; physical++)
		REQUIRE(!fm_segment_index_init(&memory->indexes[physical],
					       segments, n, UINT64_MAX,
					       physical, &err));
	return made;
}

static void made_deinit(struct made *made)
{
	for (int physical = 0; physical < 2; physical++)
		fm_segment_index_deinit(&made->memory->indexes[physical]);
	fm_source_destroy(made->memory->source);
	free(made->memory);
}

static struct fm_segment page(uint64_t address, uint64_t physical)
{
	return (struct fm_segment){ .address = address,
				    .size = 0x1000,
				    .physical_address = physical,
				    .has_physical_address = true,
				    .file_size = 0x1000 };
}

static void test_neighbours_are_one_range_and_others_come_from_the_top(void)
{
	struct fm_overlay overlay;
	uint64_t first, last;
	struct made made;

	segments[0] = page(0x1000, 0x8000);
	segments[1] = page(0x2000, 0x5000);
	segments[2] = page(0x9000, 0);
	segments[3] = page(0xfffffffffffff000, 0x7000);
	made = make(4, 0x2000, false);
	fm_overlay_init(&overlay, made.memory, false, false);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0xfffffffffffff000);
	CHECK_EQUAL(last, UINT64_MAX);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x9000);
	CHECK_EQUAL(last, 0x9fff);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x1000);
	CHECK_EQUAL(last, 0x2fff);
	CHECK(!fm_overlay_next(&overlay, &first, &last));

	fm_overlay_init(&overlay, made.memory, true, false);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x7000);
	CHECK_EQUAL(last, 0x8fff);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x5000);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(last, 0xfff);
	CHECK(!fm_overlay_next(&overlay, &first, &last));
	made_deinit(&made);
}

static void test_many_neighbours_are_ranges_that_touch(void)
{
	uint64_t first, last, below = 0x1000 * (uint64_t)MAX_SEGMENTS;
	struct fm_overlay overlay;
	struct made made;
	size_t n = 0;

	for (size_t i = 0; i < MAX_SEGMENTS; i++)
		segments[i] = page(0x1000 * i, 0x1000 * i);
	made = make(MAX_SEGMENTS, 0x2000, false);
	for (fm_overlay_init(&overlay, made.memory, false, false);
	     fm_overlay_next(&overlay, &first, &last); n++) {
		CHECK_EQUAL(last, below - 1);
		CHECK(last - first < 0x1000 * FM_OVERLAY_MAX_PIECES);
		below = first;
	}
	CHECK_EQUAL(below, 0);
	CHECK_EQUAL(n, (MAX_SEGMENTS + FM_OVERLAY_MAX_PIECES - 1) /
			       FM_OVERLAY_MAX_PIECES);
	made_deinit(&made);
}

static void test_what_was_not_saved_is_left_out_if_only_the_rest_is_wanted(void)
{
	struct fm_overlay overlay;
	uint64_t first, last;
	struct made made;

	segments[0] = page(0x1000, 0);
	segments[1] = page(0x2000, 0);
	segments[1].file_size = 0x10;
	/* Past the end of the file, and cut by it. */
	segments[2] = page(0x3000, 0);
	segments[2].file_offset = 0x2000;
	segments[3] = page(0x4000, 0);
	segments[3].file_offset = 0x1ff8;
	made = make(4, 0x2000, true);
	fm_overlay_init(&overlay, made.memory, false, true);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x4000);
	CHECK_EQUAL(last, 0x4007);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x1000);
	CHECK_EQUAL(last, 0x200f);
	CHECK(!fm_overlay_next(&overlay, &first, &last));

	/* In a kernel's dump what was not saved is zeros, but past the end of
	 * the file it is a fault all the same. */
	made.memory->zero_fill = true;
	fm_overlay_init(&overlay, made.memory, false, true);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x4000);
	CHECK_EQUAL(last, 0x4007);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, 0x1000);
	CHECK_EQUAL(last, 0x2fff);
	CHECK(!fm_overlay_next(&overlay, &first, &last));
	made_deinit(&made);
}

/* All ranges of a translating memory touch, but for one hole. */
static void check_all_but(struct made *made, uint64_t hole_first,
			  uint64_t hole_last)
{
	struct fm_overlay overlay;
	uint64_t first, last, below = 0;
	bool in_hole = false;

	fm_overlay_init(&overlay, made->memory, false, false);
	while (fm_overlay_next(&overlay, &first, &last)) {
		if (last != below - 1) {
			CHECK(!in_hole);
			in_hole = true;
			CHECK_EQUAL(below - 1, hole_last);
			CHECK_EQUAL(last + 1, hole_first);
		}
		CHECK(first <= last);
		below = first;
		if (first == 0)
			break;
	}
	if (below != 0) {
		CHECK(!in_hole);
		CHECK_EQUAL(hole_first, 0);
		CHECK_EQUAL(below - 1, hole_last);
		in_hole = true;
	}
	CHECK_EQUAL(in_hole, hole_first <= hole_last);
	CHECK(!fm_overlay_next(&overlay, &first, &last));
}

static void test_all_addresses_if_there_are_page_tables(void)
{
	struct made made;

	made = make(0, 0x2000, true);
	check_all_but(&made, 1, 0);
	made_deinit(&made);
	for (size_t i = 0; i < MAX_SEGMENTS; i++)
		segments[i] = page(0x100000 + 0x3000 * i, 0x1000 * i);
	made = make(MAX_SEGMENTS, 0x2000, true);
	check_all_but(&made, 1, 0);
	made_deinit(&made);
	segments[0] = page(0, 0);
	segments[1] = page(0xfffffffffffff000, 0x1000);
	made = make(2, 0x2000, true);
	check_all_but(&made, 1, 0);
	made_deinit(&made);
}

static void test_thousands_of_names_of_one_page_are_left_to_drgn(void)
{
	static const struct {
		size_t before, names, after;
		bool left_to_drgn;
	} cases[] = {
		{ 3, FM_OVERLAY_MIN_NAMES, 5, true },
		{ 0, FM_OVERLAY_MIN_NAMES, 5, true },
		{ 3, FM_OVERLAY_MIN_NAMES, 0, true },
		{ 1000, 2 * FM_OVERLAY_MIN_NAMES, 1000, true },
		{ 3, FM_OVERLAY_MIN_NAMES - 1, 5, false },
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		size_t n = cases[c].before + cases[c].names + cases[c].after;
		uint64_t base = 0x100000, hole_first, hole_last;
		struct made made;

		for (size_t i = 0; i < n; i++)
			segments[i] = page(base + i * 0x10000, i * 0x1000);
		for (size_t i = 0; i < cases[c].names; i++)
			segments[cases[c].before + i].physical_address = 0;
		hole_first = base + cases[c].before * 0x10000;
		hole_last = base +
			    (cases[c].before + cases[c].names - 1) * 0x10000 +
			    0xfff;
		made = make(n, 0x2000, true);
		if (cases[c].left_to_drgn)
			check_all_but(&made, hole_first, hole_last);
		else
			check_all_but(&made, 1, 0);
		made_deinit(&made);
	}
}

static void test_names_at_both_ends_of_the_address_space(void)
{
	uint64_t base = -(uint64_t)FM_OVERLAY_MIN_NAMES * 0x1000;
	struct fm_overlay overlay;
	uint64_t first, last;
	struct made made;

	for (size_t i = 0; i < FM_OVERLAY_MIN_NAMES; i++) {
		segments[i] = page(i * 0x1000, 0x1000);
		segments[FM_OVERLAY_MIN_NAMES + i] =
			page(base + i * 0x1000, 0x2000);
	}
	made = make(2 * FM_OVERLAY_MIN_NAMES, 0x2000, true);
	fm_overlay_init(&overlay, made.memory, false, false);
	REQUIRE(fm_overlay_next(&overlay, &first, &last));
	CHECK_EQUAL(first, FM_OVERLAY_MIN_NAMES * 0x1000);
	CHECK_EQUAL(last, base - 1);
	CHECK(!fm_overlay_next(&overlay, &first, &last));
	made_deinit(&made);
}

static const struct test_case cases[] = {
	{ "neighbours are one range, and others come from the top",
	  test_neighbours_are_one_range_and_others_come_from_the_top },
	{ "many neighbours are ranges that touch",
	  test_many_neighbours_are_ranges_that_touch },
	{ "what was not saved is left out if only the rest is wanted",
	  test_what_was_not_saved_is_left_out_if_only_the_rest_is_wanted },
	{ "all addresses if there are page tables",
	  test_all_addresses_if_there_are_page_tables },
	{ "thousands of names of one page are left to drgn",
	  test_thousands_of_names_of_one_page_are_left_to_drgn },
	{ "names at both ends of the address space",
	  test_names_at_both_ends_of_the_address_space },
};
TEST_MAIN("test_overlay", cases)
