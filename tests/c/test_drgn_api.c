// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* Attaching to a stand-in for libdrgn that is built here: what is checked
 * before anything is trusted, which ranges are added, what the callback gives
 * back. */

#include <dlfcn.h>
#include <unistd.h>

#include "drgn_api.h"
#include "source_mem.h"
#include "test.h"

struct fake_segment {
	uint64_t address, size;
	fm_drgn_read_fn *read_fn;
	void *arg;
	bool physical;
};

/* The library's handle; path is its absolute path. */
static void *fake_open(const char *name, char *path)
{
	void *handle;

	REQUIRE(getcwd(path, 3000));
	strcat(path, "/");
	strcat(path, name);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	REQUIRE(handle);
	return handle;
}

#define FAKE(handle, type, name) (*(type *)dlsym(handle, name))

static unsigned char bytes[0x1000];

static struct fm_memory *memory_of(const struct fm_segment *segments, size_t n)
{
	struct fm_elf_core core = { .is_64_bit = true,
				    .is_little_endian = true };
	struct fm_memory_options options = { 0 };
	struct fm_source *source;
	struct fm_memory *memory;
	struct fm_error err;

	core.segments = calloc(n, sizeof(*segments));
	REQUIRE(core.segments);
	memcpy(core.segments, segments, n * sizeof(*segments));
	core.nr_segments = n;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i * 3;
	REQUIRE(!fm_source_mem_create(bytes, sizeof(bytes), true, UINT64_MAX, 0,
				      &source, &err));
	REQUIRE(!fm_memory_create(source, &core, &options, &memory, &err));
	return memory;
}

static void test_library_that_is_not_loaded(void)
{
	struct fm_drgn_api api;
	struct fm_error err;

	CHECK(fm_drgn_api_load(&api, "/nowhere/_drgn.so", &err));
	CHECK_EQUAL(err.code, FM_ERROR_FORMAT);
}

static void test_library_that_lacks_a_symbol(void)
{
	static const char *const names[] = { "add_memory_segment",
					     "create_fault", "platform",
					     "error_destroy" };

	for (size_t i = 0; i < FM_ARRAY_SIZE(names); i++) {
		char path[4096], name[100];
		struct fm_drgn_api api;
		struct fm_error err;
		void *handle;

		snprintf(name, sizeof(name), "fake_libdrgn_%s.so", names[i]);
		handle = fake_open(name, path);
		CHECK(fm_drgn_api_load(&api, path, &err));
		CHECK(strstr(err.message, names[i]));
		dlclose(handle);
	}
}

static void test_platform_outside_of_the_object_is_refused(void)
{
	struct {
		char head[16], program[100], after[16];
	} object;
	char path[4096];
	void *handle = fake_open("fake_libdrgn.so", path);
	size_t size = sizeof(object.head) + sizeof(object.program);
	struct drgn_program *program;
	struct fm_drgn_api api;
	struct fm_error err;
	struct {
		void *platform;
		bool is_good;
	} places[] = {
		{ NULL, false },
		{ object.head, false },
		{ object.program, true },
		{ object.program + 99, true },
		{ object.after, false },
		{ (void *)((uintptr_t)&object - 8), false },
		{ (void *)(uintptr_t)-1, false },
	};

	REQUIRE(!fm_drgn_api_load(&api, path, &err));
	for (size_t i = 0; i < FM_ARRAY_SIZE(places); i++) {
		FAKE(handle, void *, "fake_platform") = places[i].platform;
		if (places[i].is_good) {
			CHECK(!fm_drgn_api_program(&api, &object,
						   sizeof(object.head), size,
						   &program, &err));
			CHECK((char *)program == object.program);
		} else {
			CHECK(fm_drgn_api_program(&api, &object,
						  sizeof(object.head), size,
						  &program, &err));
		}
	}
	dlclose(handle);
}

static void test_ranges_are_added_and_read(void)
{
	static const struct fm_segment segments[] = {
		{ .address = 0x1000,
		  .size = 0x100,
		  .file_size = 0x100,
		  .physical_address = 0x8000,
		  .has_physical_address = true },
		{ .address = 0x1100,
		  .size = 0x100,
		  .file_size = 0x80,
		  .file_offset = 0x100 },
		{ .address = 0x4000, .size = 0x10, .file_size = 0x10 },
	};
	struct fm_drgn_attachment attachment;
	struct fake_segment *added;
	char path[4096];
	void *handle = fake_open("fake_libdrgn.so", path);
	unsigned char buf[0x200];
	struct fm_error err;

	attachment.memory = memory_of(segments, 3);
	REQUIRE(!fm_drgn_api_load(&attachment.api, path, &err));
	FAKE(handle, size_t, "fake_nr_segments") = 0;
	REQUIRE(!fm_drgn_api_attach(&attachment, NULL, &err));
	added = dlsym(handle, "fake_segments");
	/* Two that touch are one range; the highest comes first. */
	CHECK_EQUAL(FAKE(handle, size_t, "fake_nr_segments"), 3);
	CHECK(added[0].address == 0x4000 && added[0].size == 0x10 &&
	      !added[0].physical);
	CHECK(added[1].address == 0x1000 && added[1].size == 0x200 &&
	      !added[1].physical);
	CHECK(added[2].address == 0x8000 && added[2].size == 0x100 &&
	      added[2].physical);

	CHECK(!added[1].read_fn(buf, 0x10f0, 0x20, 0xf0, added[1].arg, false));
	CHECK(!memcmp(buf, bytes + 0xf0, 0x20));
	CHECK(!added[2].read_fn(buf, 0x8010, 8, 0x10, added[2].arg, true));
	CHECK(!memcmp(buf, bytes + 0x10, 8));
	CHECK(added[1].read_fn(buf, 0x1170, 0x20, 0x170, added[1].arg, false));
	CHECK_EQUAL(FAKE(handle, uint64_t, "fake_fault_address"), 0x1180);
	fm_memory_put(attachment.memory);
	dlclose(handle);
}

static void test_the_whole_address_space_is_two_ranges(void)
{
	static const struct fm_segment segments[] = {
		{ .address = 0, .size = UINT64_MAX, .file_size = 0x1000 },
		{ .address = UINT64_MAX,
		  .size = 1,
		  .file_size = 1,
		  .file_offset = 5 },
	};
	struct fm_drgn_attachment attachment;
	struct fake_segment *added;
	char path[4096];
	void *handle = fake_open("fake_libdrgn.so", path);
	unsigned char c;
	struct fm_error err;

	attachment.memory = memory_of(segments, 2);
	REQUIRE(!fm_drgn_api_load(&attachment.api, path, &err));
	FAKE(handle, size_t, "fake_nr_segments") = 0;
	REQUIRE(!fm_drgn_api_attach(&attachment, NULL, &err));
	added = dlsym(handle, "fake_segments");
	CHECK_EQUAL(FAKE(handle, size_t, "fake_nr_segments"), 2);
	CHECK(added[0].address == UINT64_MAX && added[0].size == 1);
	CHECK(added[1].address == 0 && added[1].size == UINT64_MAX);
	CHECK(!added[0].read_fn(&c, UINT64_MAX, 1, 0, added[0].arg, false));
	CHECK_EQUAL(c, bytes[5]);
	fm_memory_put(attachment.memory);
	dlclose(handle);
}

static void test_drgn_refuses_a_range(void)
{
	static const struct fm_segment segment = { .address = 0, .size = 1 };
	struct fm_drgn_attachment attachment;
	char path[4096];
	void *handle = fake_open("fake_libdrgn.so", path);
	struct fm_error err;

	attachment.memory = memory_of(&segment, 1);
	REQUIRE(!fm_drgn_api_load(&attachment.api, path, &err));
	FAKE(handle, size_t, "fake_nr_segments") = 0;
	FAKE(handle, size_t, "fake_refuse_at") = 0;
	FAKE(handle, unsigned int, "fake_nr_destroyed") = 0;
	CHECK(fm_drgn_api_attach(&attachment, NULL, &err));
	CHECK_EQUAL(FAKE(handle, unsigned int, "fake_nr_destroyed"), 1);
	FAKE(handle, size_t, "fake_refuse_at") = SIZE_MAX;
	fm_memory_put(attachment.memory);
	dlclose(handle);
}

static const struct test_case cases[] = {
	{ "a library that is not loaded", test_library_that_is_not_loaded },
	{ "a library that lacks a symbol", test_library_that_lacks_a_symbol },
	{ "a platform outside of the object is refused",
	  test_platform_outside_of_the_object_is_refused },
	{ "ranges are added and read", test_ranges_are_added_and_read },
	{ "the whole address space is two ranges",
	  test_the_whole_address_space_is_two_ranges },
	{ "drgn refuses a range", test_drgn_refuses_a_range },
};
TEST_MAIN("test_drgn_api", cases)
