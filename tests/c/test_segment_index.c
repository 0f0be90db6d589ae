// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* The index: situations written as text, and random ones against a model that
 * asks every segment about every byte. */

#include "segment_index.h"
#include "test.h"

enum { MAX_SEGMENTS = 16 };

/* "A 10-1f, B 18-27": segments in header order, addresses in hexadecimal. */
static size_t parse(const char *text, struct fm_segment *segments)
{
	size_t n = 0;
	unsigned long long first, last;
	char name;
	int used;

	while (sscanf(text, " %c %llx-%llx%n", &name, &first, &last, &used) ==
	       3) {
		REQUIRE(n < MAX_SEGMENTS);
		memset(&segments[n], 0, sizeof(segments[n]));
		segments[n].address = first;
		segments[n].size = last - first + 1;
		segments[n].file_size = segments[n].size;
		segments[n].file_offset = 0x1000 * (n + 1);
		n++;
		text += used;
		if (*text == ',')
			text++;
	}
	return n;
}

/* The pieces in the same form. */
static void print(const struct fm_segment_index *index, char *text)
{
	*text = '\0';
	for (size_t i = 0; i < index->nr_pieces; i++)
		text += sprintf(text, "%s%c %llx-%llx", i ? ", " : "",
				(char)('A' + index->pieces[i].segment),
				(unsigned long long)index->pieces[i].first,
				(unsigned long long)index->pieces[i].last);
}

static const struct {
	const char *situation, *segments, *pieces;
	uint64_t mask;
} situations[] = {
	{ "no segment", "", "", UINT64_MAX },
	{ "one", "A 10-1f", "A 10-1f", UINT64_MAX },
	{ "two that touch", "A 10-1f, B 20-2f", "A 10-1f, B 20-2f",
	  UINT64_MAX },
	{ "not in order", "A 20-2f, B 10-17", "B 10-17, A 20-2f", UINT64_MAX },
	{ "the last header wins", "A 10-1f, B 10-1f", "B 10-1f", UINT64_MAX },
	{ "over the end of an earlier one", "A 10-1f, B 18-27",
	  "A 10-17, B 18-27", UINT64_MAX },
	{ "over the beginning of an earlier one", "A 18-27, B 10-1f",
	  "B 10-1f, A 20-27", UINT64_MAX },
	{ "inside an earlier one", "A 10-3f, B 20-2f",
	  "A 10-1f, B 20-2f, A 30-3f", UINT64_MAX },
	{ "around an earlier one", "A 20-2f, B 10-3f", "B 10-3f", UINT64_MAX },
	{ "a later one over many", "A 10-1f, B 20-2f, C 30-3f, D 18-37",
	  "A 10-17, D 18-37, C 38-3f", UINT64_MAX },
	{ "the same begin, shorter", "A 10-3f, B 10-1f", "B 10-1f, A 20-3f",
	  UINT64_MAX },
	{ "the same end, shorter", "A 10-3f, B 30-3f", "A 10-2f, B 30-3f",
	  UINT64_MAX },
	{ "three deep", "A 0-ff, B 10-ef, C 20-2f",
	  "A 0-f, B 10-1f, C 20-2f, B 30-ef, A f0-ff", UINT64_MAX },
	{ "one byte", "A 10-10, B 11-11, C 10-10", "C 10-10, B 11-11",
	  UINT64_MAX },
	{ "the last byte of the address space",
	  "A ffffffffffffff00-ffffffffffffffff",
	  "A ffffffffffffff00-ffffffffffffffff", UINT64_MAX },
	{ "overlapping at the last byte",
	  "A fffffffffffffff0-ffffffffffffffff, B "
	  "ffffffffffffffff-ffffffffffffffff",
	  "A fffffffffffffff0-fffffffffffffffe, B "
	  "ffffffffffffffff-ffffffffffffffff",
	  UINT64_MAX },
	{ "32 bits: cut at the end", "A fffffff0-100000010",
	  "A fffffff0-ffffffff", UINT32_MAX },
	{ "32 bits: beyond the end", "A 100000000-10000000f, B 10-1f",
	  "B 10-1f", UINT32_MAX },
};

static void test_situations(void)
{
	for (size_t i = 0; i < FM_ARRAY_SIZE(situations); i++) {
		struct fm_segment segments[MAX_SEGMENTS];
		size_t n = parse(situations[i].segments, segments);
		struct fm_segment_index index;
		struct fm_error err;
		char text[1024];

		REQUIRE(!fm_segment_index_init(
			&index, segments, n, situations[i].mask, false, &err));
		print(&index, text);
		if (strcmp(text, situations[i].pieces)) {
			fprintf(stderr, "%s: got %s, want %s\n",
				situations[i].situation, text,
				situations[i].pieces);
			test_failed_ = true;
		}
		fm_segment_index_deinit(&index);
	}
}

static void test_size_that_wraps_is_cut(void)
{
	struct fm_segment segment = { .address = UINT64_MAX - 0xf,
				      .size = UINT64_MAX,
				      .file_size = UINT64_MAX };
	struct fm_segment_index index;
	struct fm_error err;

	REQUIRE(!fm_segment_index_init(&index, &segment, 1, UINT64_MAX, false,
				       &err));
	CHECK_EQUAL(index.nr_pieces, 1);
	CHECK_EQUAL(index.pieces[0].last, UINT64_MAX);
	CHECK(!fm_segment_index_find(&index, 0));
	fm_segment_index_deinit(&index);
}

static void test_empty_segment_holds_nothing(void)
{
	struct fm_segment segment = { .address = 0 };
	struct fm_segment_index index;
	struct fm_error err;

	REQUIRE(!fm_segment_index_init(&index, &segment, 1, UINT64_MAX, false,
				       &err));
	for (uint64_t address = 0; address < 3; address++)
		CHECK(!fm_segment_index_find(&index, address));
	CHECK_EQUAL(fm_segment_index_gap_last(&index, 1), UINT64_MAX);
	fm_segment_index_deinit(&index);
}

static void test_offset_past_the_end_of_64_bits_is_no_offset(void)
{
	struct fm_segment segments[] = {
		{ .address = 0,
		  .size = 0x40,
		  .file_size = 0x40,
		  .file_offset = UINT64_MAX - 0xf },
		{ .address = 0x10, .size = 0x10, .file_size = 0x10 },
	};
	struct fm_segment_index index;
	struct fm_error err;

	REQUIRE(!fm_segment_index_init(&index, segments, 2, UINT64_MAX, false,
				       &err));
	CHECK_EQUAL(index.nr_pieces, 3);
	CHECK_EQUAL(index.pieces[2].file_offset, UINT64_MAX);
	CHECK_EQUAL(index.pieces[2].file_size, 0x20);
	fm_segment_index_deinit(&index);
}

static void test_mapped_part_of_a_piece(void)
{
	static const unsigned char bytes[0x30];
	/* 0x30 bytes of 0x40 are mapped; B covers 0x10 to 0x1f. */
	struct fm_segment segments[] = {
		{ .address = 0,
		  .size = 0x40,
		  .file_size = 0x40,
		  .map = bytes,
		  .map_size = 0x30 },
		{ .address = 0x10, .size = 0x10, .file_size = 0x10 },
	};
	struct fm_segment_index index;
	struct fm_error err;

	REQUIRE(!fm_segment_index_init(&index, segments, 2, UINT64_MAX, false,
				       &err));
	CHECK(index.pieces[0].map == bytes);
	CHECK_EQUAL(index.pieces[0].map_last, 0xf);
	CHECK(!index.pieces[1].map);
	CHECK(index.pieces[2].map == bytes + 0x20);
	CHECK_EQUAL(index.pieces[2].map_last, 0x2f);
	CHECK_EQUAL(index.pieces[2].last, 0x3f);
	fm_segment_index_deinit(&index);
}

/* Which segment holds address, or -1: the last one that does. */
static int model(const struct fm_segment *segments, size_t n, uint64_t address)
{
	for (size_t i = n; i-- > 0;) {
		if (address >= segments[i].address &&
		    address - segments[i].address < segments[i].size)
			return i;
	}
	return -1;
}

static void check_against_model(const struct fm_segment *segments, size_t n,
				uint64_t end)
{
	struct fm_segment_index index;
	struct fm_error err;
	uint64_t covered = 0, held = 0;

	REQUIRE(!fm_segment_index_init(&index, segments, n, UINT64_MAX, false,
				       &err));
	for (uint64_t address = 0; address < end; address++) {
		const struct fm_piece *piece =
			fm_segment_index_find(&index, address);
		int want = model(segments, n, address);

		held += want >= 0;
		if (!piece) {
			uint64_t gap =
				fm_segment_index_gap_last(&index, address);

			CHECK_EQUAL(want, -1);
			CHECK(gap >= address);
			if (gap < end) {
				CHECK_EQUAL(model(segments, n, gap), -1);
				CHECK(model(segments, n, gap + 1) != -1);
			}
			continue;
		}
		CHECK_EQUAL(piece->segment, want);
		CHECK_EQUAL(piece->file_offset + (address - piece->first),
			    segments[want].file_offset +
				    (address - segments[want].address));
	}
	for (size_t i = 0; i < index.nr_pieces; i++) {
		const struct fm_piece *piece = &index.pieces[i];

		CHECK(i == 0 || piece->first > piece[-1].last);
		covered += piece->last - piece->first + 1;
	}
	CHECK_EQUAL(covered, held);
	fm_segment_index_deinit(&index);
}

static void test_random_segments_against_the_model(void)
{
	uint64_t state = 88172645463325252;

	for (int round = 0; round < 3000; round++) {
		struct fm_segment segments[MAX_SEGMENTS] = { 0 };
		size_t n = test_random(&state) % MAX_SEGMENTS;

		for (size_t i = 0; i < n; i++) {
			segments[i].address = test_random(&state) % 100;
			segments[i].size = test_random(&state) % 40;
			segments[i].file_size = segments[i].size;
			segments[i].file_offset = test_random(&state) % 1000;
		}
		check_against_model(segments, n, 160);
	}
}

static void test_70000_segments(void)
{
	enum { NR = 70000 };
	struct fm_segment *segments = calloc(NR, sizeof(*segments));
	struct fm_segment_index index;
	struct fm_error err;
	uint64_t state = 1;

	REQUIRE(segments);
	/* From the highest down, every other page. */
	for (size_t i = 0; i < NR; i++) {
		segments[i].address = 0xffff888000000000 + (NR - i) * 0x2000;
		segments[i].size = segments[i].file_size = 0x1000;
	}
	REQUIRE(!fm_segment_index_init(&index, segments, NR, UINT64_MAX, false,
				       &err));
	CHECK_EQUAL(index.nr_pieces, NR);
	for (int i = 0; i < 100000; i++) {
		size_t at = test_random(&state) % NR;
		uint64_t address = segments[at].address;
		const struct fm_piece *piece =
			fm_segment_index_find(&index, address + 0xfff);

		REQUIRE(piece);
		CHECK_EQUAL(piece->segment, at);
		CHECK(!fm_segment_index_find(&index, address + 0x1000));
	}
	fm_segment_index_deinit(&index);
	free(segments);
}

static void test_physical_addresses_only_where_there_are_any(void)
{
	struct fm_segment segments[] = {
		{ .address = 0x1000,
		  .size = 0x10,
		  .physical_address = 0x50,
		  .has_physical_address = true },
		{ .address = 0x2000, .size = 0x10, .physical_address = 0x50 },
	};
	struct fm_segment_index index;
	struct fm_error err;

	REQUIRE(!fm_segment_index_init(&index, segments, 2, UINT64_MAX, true,
				       &err));
	CHECK_EQUAL(index.nr_pieces, 1);
	CHECK_EQUAL(index.pieces[0].segment, 0);
	CHECK_EQUAL(index.pieces[0].first, 0x50);
	fm_segment_index_deinit(&index);
}

static const struct test_case cases[] = {
	{ "situations written as text", test_situations },
	{ "a size that wraps is cut", test_size_that_wraps_is_cut },
	{ "an empty segment holds nothing", test_empty_segment_holds_nothing },
	{ "an offset past 2^64 is no offset",
	  test_offset_past_the_end_of_64_bits_is_no_offset },
	{ "a piece that is mapped in part", test_mapped_part_of_a_piece },
	{ "random segments against a model",
	  test_random_segments_against_the_model },
	{ "70,000 segments", test_70000_segments },
	{ "physical addresses",
	  test_physical_addresses_only_where_there_are_any },
};
TEST_MAIN("test_segment_index", cases)
