// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/* Reads of a memory that is put together here, over a buffer that fails where
 * it is told to and over a file that changes. */

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "source_file.h"
#include "source_mem.h"
#include "test.h"

enum { BYTES = 0x4000 };

static unsigned char bytes[BYTES];

/* address size file_offset file_size, in hexadecimal, a line each. */
static struct fm_elf_core core_of(const char *text)
{
	struct fm_elf_core core = { .is_64_bit = true,
				    .is_little_endian = true,
				    .machine = EM_X86_64 };
	unsigned long long address, size, offset, file_size;
	int used;

	core.segments = calloc(16, sizeof(*core.segments));
	REQUIRE(core.segments);
	while (sscanf(text, " %llx %llx %llx %llx%n", &address, &size, &offset,
		      &file_size, &used) == 4) {
		struct fm_segment *segment = &core.segments[core.nr_segments++];

		REQUIRE(core.nr_segments <= 16);
		segment->address = address;
		segment->size = size;
		segment->file_offset = offset;
		segment->file_size = file_size;
		text += used;
	}
	return core;
}

struct target {
	const char *segments;
	bool not_borrowable, kernel, aarch64, is_32_bit;
	uint64_t fail_offset;
};

static struct fm_memory *memory_of(const struct target *target)
{
	struct fm_elf_core core = core_of(target->segments);
	struct fm_memory_options options = { .kernel = target->kernel };
	struct fm_source *source;
	struct fm_memory *memory;
	struct fm_error err;

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = i % 251 + 1;
	core.is_64_bit = !target->is_32_bit;
	if (target->aarch64)
		core.machine = EM_AARCH64;
	REQUIRE(!fm_source_mem_create(
		bytes, BYTES, !target->not_borrowable,
		target->fail_offset ? target->fail_offset : UINT64_MAX, EIO,
		&source, &err));
	REQUIRE(!fm_memory_create(source, &core, &options, &memory, &err));
	return memory;
}

/* The fault of a read, or UINT64_MAX - 1 if it succeeds. */
static uint64_t fault_of(struct fm_memory *memory, uint64_t address,
			 size_t count, enum fm_fault_reason *reason)
{
	unsigned char buf[BYTES];
	struct fm_error err;

	REQUIRE(count <= sizeof(buf));
	if (!fm_memory_read(memory, buf, address, count, false, &err))
		return UINT64_MAX - 1;
	CHECK_EQUAL(err.code, FM_ERROR_FAULT);
	*reason = err.reason;
	return err.address;
}

static void check_read(struct fm_memory *memory, uint64_t address,
		       uint64_t offset, size_t count)
{
	unsigned char buf[BYTES];
	struct fm_error err;

	memset(buf, 0, sizeof(buf));
	CHECK(!fm_memory_read(memory, buf, address, count, false, &err));
	CHECK(!memcmp(buf, bytes + offset, count));
}

static void check_both_ways(const struct target *target,
			    void (*check)(struct fm_memory *memory))
{
	struct target copy = *target;

	for (int way = 0; way < 2; way++) {
		struct fm_memory *memory;

		copy.not_borrowable = way;
		memory = memory_of(&copy);
		check(memory);
		fm_memory_put(memory);
	}
}

static void check_several_pieces(struct fm_memory *memory)
{
	check_read(memory, 0x1000, 0x200, 0x10);
	/* Two segments side by side, in the file the other way round. */
	unsigned char buf[0x40];
	struct fm_error err;

	CHECK(!fm_memory_read(memory, buf, 0x10e0, 0x40, false, &err));
	CHECK(!memcmp(buf, bytes + 0x2e0, 0x20));
	CHECK(!memcmp(buf + 0x20, bytes + 0x100, 0x20));
}

static void test_read_over_two_segments(void)
{
	check_both_ways(
		&(struct target){ "1000 100 200 100\n1100 100 100 100" },
		check_several_pieces);
}

static void check_faults(struct fm_memory *memory)
{
	enum fm_fault_reason reason;

	CHECK_EQUAL(fault_of(memory, 0xff0, 0x20, &reason), 0xff0);
	CHECK_EQUAL(reason, FM_FAULT_UNMAPPED);
	CHECK_EQUAL(fault_of(memory, 0x10f0, 0x200, &reason), 0x1180);
	CHECK_EQUAL(reason, FM_FAULT_EXCLUDED);
	CHECK_EQUAL(fault_of(memory, 0x1180, 1, &reason), 0x1180);
	CHECK_EQUAL(reason, FM_FAULT_EXCLUDED);
	/* The second segment has 0x100 bytes past the end of the source. */
	CHECK_EQUAL(fault_of(memory, 0x2000, 0x200, &reason), 0x2100);
	CHECK_EQUAL(reason, FM_FAULT_SHORT);
	CHECK_EQUAL(fault_of(memory, 0x21ff, 1, &reason), 0x21ff);
	/* Neither may spoil what is right. */
	check_read(memory, 0x1100, 0x100, 0x80);
	check_read(memory, 0x20f8, 0x3ff8, 8);
}

static void test_first_address_that_cant_be_read(void)
{
	check_both_ways(&(struct target){ "1000 200 0 180\n2000 200 3f00 200" },
			check_faults);
}

static void check_zero_fill(struct fm_memory *memory)
{
	unsigned char buf[0x100], want[0x100] = { 0 };
	struct fm_error err;

	memcpy(want, bytes + 0x100, 0x80);
	CHECK(!fm_memory_read(memory, buf, 0x1100, 0x100, false, &err));
	CHECK(!memcmp(buf, want, sizeof(buf)));
}

static void test_kernel_memory_that_was_not_saved_is_zeros(void)
{
	check_both_ways(&(struct target){ .segments = "1000 200 0 180",
					  .kernel = true },
			check_zero_fill);
}

static void test_not_saved_is_decided_before_the_file_is_read(void)
{
	/* As drgn: the file ends at 2100, but 2180 was never saved. */
	struct fm_memory *memory =
		memory_of(&(struct target){ "2000 200 3f00 180" });
	enum fm_fault_reason reason;

	CHECK_EQUAL(fault_of(memory, 0x2000, 0x200, &reason), 0x2180);
	CHECK_EQUAL(reason, FM_FAULT_EXCLUDED);
	CHECK_EQUAL(fault_of(memory, 0x2000, 0x180, &reason), 0x2100);
	CHECK_EQUAL(reason, FM_FAULT_SHORT);
	fm_memory_put(memory);
}

static void test_error_of_the_source(void)
{
	struct fm_memory *memory = memory_of(&(struct target){
		.segments = "1000 1000 0 1000", .fail_offset = 0x234 });
	unsigned char buf[0x400];
	struct fm_error err;

	CHECK(fm_memory_read(memory, buf, 0x1200, 0x100, false, &err));
	CHECK_EQUAL(err.reason, FM_FAULT_IO);
	CHECK_EQUAL(err.os_errno, EIO);
	CHECK_EQUAL(err.address, 0x1234);
	CHECK(strstr(err.message, strerror(EIO)));
	fm_memory_put(memory);
}

static void test_reads_wrap_at_the_end_of_the_address_space(void)
{
	struct fm_memory *memory = memory_of(
		&(struct target){ "fffffffffffffff0 10 0 10\n0 10 10 10" });

	check_read(memory, UINT64_MAX - 7, 8, 16);
	check_read(memory, UINT64_MAX, 15, 1);
	fm_memory_put(memory);

	memory = memory_of(&(struct target){ .segments = "fffffff0 10 0 10\n"
							 "0 10 10 10",
					     .is_32_bit = true });
	check_read(memory, 0xfffffff8, 8, 16);
	/* Only the low 32 bits of an address count. */
	check_read(memory, 0x1234500000000000, 0x10, 8);
	fm_memory_put(memory);
}

static void test_tags_of_aarch64_addresses(void)
{
	struct fm_memory *memory = memory_of(
		&(struct target){ .segments = "ffff800000000000 100 0 100\n"
					      "1000 100 100 100",
				  .aarch64 = true });

	check_read(memory, 0xffff800000000008, 8, 8);
	check_read(memory, 0x5aff800000000008, 8, 8);
	check_read(memory, 0x5a00000000001008, 0x108, 8);
	fm_memory_put(memory);
}

static void check_string(struct fm_memory *memory, uint64_t address,
			 uint64_t max_size, const char *want)
{
	struct fm_error err;
	char *string;
	size_t size;

	if (fm_memory_read_c_string(memory, address, max_size, false, &string,
				    &size, &err)) {
		CHECK(!want);
		return;
	}
	CHECK(want && !strcmp(string, want) && size == strlen(want));
	free(string);
}

static void check_strings(struct fm_memory *memory)
{
	/* In the middle of a segment, over two of them, over two pages. */
	memcpy(bytes + 0x10, "hello", 6);
	memcpy(bytes + 0xffd, "over", 3);
	memcpy(bytes + 0x2000, "the edge", 9);
	check_string(memory, 0x1010, UINT64_MAX, "hello");
	check_string(memory, 0x1010, 5, "hello");
	check_string(memory, 0x1010, 3, "hel");
	check_string(memory, 0x1010, 0, "");
	check_string(memory, 0x1ffd, UINT64_MAX, "ovethe edge");
	check_string(memory, 0x2000, UINT64_MAX, "the edge");
	/* No end before the end of memory: bytes[] has no other zero. */
	check_string(memory, 0x2010, UINT64_MAX, NULL);
	check_string(memory, 0x5000, UINT64_MAX, NULL);
	check_string(memory, 0x5000, 0, "");
	/* max_size ends just before what can't be read. */
	bytes[0x20ff] = 'x';
	bytes[0x20fe] = 'y';
	check_string(memory, 0x20fe, 2, "yx");
	check_string(memory, 0x20fe, 3, NULL);
}

static void test_strings(void)
{
	check_both_ways(&(struct target){ "1000 1000 0 1000\n"
					  "2000 100 2000 100" },
			check_strings);
}

static void test_long_string(void)
{
	struct fm_memory *memory =
		memory_of(&(struct target){ "1000 4000 0 4000" });
	struct fm_error err;
	char *string;
	size_t size;

	bytes[0x3000] = '\0';
	REQUIRE(!fm_memory_read_c_string(memory, 0x1003, UINT64_MAX, false,
					 &string, &size, &err));
	CHECK_EQUAL(size, 0x2ffd);
	CHECK(!memcmp(string, bytes + 3, size + 1));
	free(string);
	fm_memory_put(memory);
}

static void test_counters(void)
{
	struct fm_memory *memory =
		memory_of(&(struct target){ "1000 100 0 100" });
	struct fm_memory_stats stats;
	enum fm_fault_reason reason;

	check_read(memory, 0x1000, 0, 8);
	check_read(memory, 0x1010, 0x10, 100);
	fault_of(memory, 0x5000, 8, &reason);
	fm_memory_get_stats(memory, &stats);
	CHECK_EQUAL(stats.reads, 3);
	CHECK_EQUAL(stats.bytes, 108);
	CHECK_EQUAL(stats.faults, 1);
	CHECK_EQUAL(stats.mapped_reads, 2);
	CHECK_EQUAL(stats.syscalls, 0);
	fm_memory_reset_stats(memory);
	fm_memory_get_stats(memory, &stats);
	CHECK_EQUAL(stats.reads + stats.bytes + stats.faults +
			    stats.mapped_reads,
		    0);
	fm_memory_put(memory);
}

/* A memory over a file of pages 'a', 'b', 'c'..., at 0x10000. */
static struct fm_memory *memory_of_file(int fd, size_t nr_pages, bool kcore)
{
	char text[64];
	struct fm_elf_core core;
	struct fm_memory_options options = { .mmap = FM_MMAP_ALWAYS };
	struct fm_source_file_options file_options = { .map = true,
						       .kcore = kcore };
	struct fm_source *source;
	struct fm_memory *memory;
	struct fm_error err;

	snprintf(text, sizeof(text), "10000 %zx 0 %zx", nr_pages * 4096,
		 nr_pages * 4096);
	core = core_of(text);
	file_options.extent = nr_pages * 4096;
	REQUIRE(!fm_source_file_create(dup(fd), &file_options, &source, &err));
	REQUIRE(!fm_memory_create(source, &core, &options, &memory, &err));
	return memory;
}

static int file_of_pages(size_t nr_pages)
{
	int fd = memfd_create("pages", 0);
	char page[4096];

	REQUIRE(fd >= 0);
	for (size_t i = 0; i < nr_pages; i++) {
		memset(page, 'a' + i, sizeof(page));
		REQUIRE(write(fd, page, sizeof(page)) == sizeof(page));
	}
	return fd;
}

static void test_file_that_is_cut_while_it_is_mapped(void)
{
	int fd = file_of_pages(4);
	struct fm_memory *memory = memory_of_file(fd, 4, false);
	struct fm_memory_stats stats;
	enum fm_fault_reason reason;
	unsigned char c = 0;
	struct fm_error err;

	CHECK(!fm_memory_read(memory, &c, 0x13fff, 1, false, &err) && c == 'd');
	REQUIRE(!ftruncate(fd, 2 * 4096));
	CHECK_EQUAL(fault_of(memory, 0x11ff0, 0x20, &reason), 0x12000);
	CHECK_EQUAL(reason, FM_FAULT_SHORT);
	CHECK(!fm_memory_read(memory, &c, 0x11fff, 1, false, &err) && c == 'b');
	fm_memory_get_stats(memory, &stats);
	CHECK_EQUAL(stats.sigbus, 1);
	/* It is written anew, as cp does: the answer is the file's. */
	REQUIRE(!ftruncate(fd, 4 * 4096));
	CHECK(!fm_memory_read(memory, &c, 0x13000, 1, false, &err) && !c);
	fm_memory_put(memory);
	close(fd);
}

static void test_file_that_is_cut_in_a_page_is_noticed(void)
{
	int fd = file_of_pages(1);
	struct fm_memory *memory = memory_of_file(fd, 1, false);
	enum fm_fault_reason reason;
	unsigned char c;
	struct fm_error err;

	REQUIRE(!ftruncate(fd, 100));
	for (int i = 0; i < FM_MEMORY_CHECK_INTERVAL; i++)
		CHECK(!fm_memory_read(memory, &c, 0x10000, 1, false, &err));
	CHECK_EQUAL(fault_of(memory, 0x10000 + 90, 20, &reason), 0x10000 + 100);
	CHECK_EQUAL(reason, FM_FAULT_SHORT);
	fm_memory_put(memory);
	close(fd);
}

static void test_file_that_grows(void)
{
	int fd = file_of_pages(2);
	struct fm_memory *memory = memory_of_file(fd, 3, false);
	enum fm_fault_reason reason;
	unsigned char c;
	struct fm_error err;

	CHECK_EQUAL(fault_of(memory, 0x11fff, 2, &reason), 0x12000);
	REQUIRE(pwrite(fd, "now", 3, 2 * 4096) == 3);
	CHECK(!fm_memory_read(memory, &c, 0x12002, 1, false, &err) && c == 'w');
	CHECK_EQUAL(fault_of(memory, 0x12002, 2, &reason), 0x12003);
	fm_memory_put(memory);
	close(fd);
}

static void test_mapped_by_ranges_as_kcore_is(void)
{
	int fd = file_of_pages(4);
	struct fm_memory *memory = memory_of_file(fd, 4, true);
	struct fm_memory_stats stats;
	unsigned char c;
	struct fm_error err;

	CHECK(!fm_memory_read(memory, &c, 0x12000, 1, false, &err) && c == 'c');
	fm_memory_get_stats(memory, &stats);
	CHECK_EQUAL(stats.mapped_reads, 1);
	fm_memory_put(memory);
	close(fd);
}

static void test_bulk_reads_go_to_pread(void)
{
	enum { PAGES = 2 * FM_MEMORY_BULK_SIZE / 4096 };
	int fd = file_of_pages(PAGES);
	struct fm_memory *memory = memory_of_file(fd, PAGES, false);
	unsigned char *buf = malloc(PAGES * 4096), *want = malloc(PAGES * 4096);
	struct fm_memory_stats stats;
	struct fm_error err;

	REQUIRE(buf && want);
	REQUIRE(pread(fd, want, PAGES * 4096, 0) == PAGES * 4096);
	for (int less = 1; less >= 0; less--) {
		fm_memory_reset_stats(memory);
		CHECK(!fm_memory_read(memory, buf, 0x10001,
				      FM_MEMORY_BULK_SIZE - less, false, &err));
		CHECK(!memcmp(buf, want + 1, FM_MEMORY_BULK_SIZE - less));
		fm_memory_get_stats(memory, &stats);
		CHECK_EQUAL(stats.mapped_reads, less);
		CHECK_EQUAL(stats.syscalls, !less);
	}
	free(want);
	free(buf);
	fm_memory_put(memory);
	close(fd);
}

struct reader {
	struct fm_memory *memory;
	unsigned long wrong;
};

static void *reader_thread(void *arg)
{
	struct reader *reader = arg;
	struct fm_error err;

	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t at = i * 97 % (4 * 4096 - 64);
		unsigned char buf[64];

		if (fm_memory_read(reader->memory, buf, 0x10000 + at, 64, false,
				   &err) ||
		    buf[0] != 'a' + at / 4096 ||
		    buf[63] != 'a' + (at + 63) / 4096)
			reader->wrong++;
	}
	fm_memory_put(reader->memory);
	return NULL;
}

static void test_threads_read_and_the_last_one_closes(void)
{
	int fd = file_of_pages(4);
	struct fm_memory *memory = memory_of_file(fd, 4, true);
	struct reader readers[4];
	pthread_t threads[4];

	for (size_t i = 0; i < FM_ARRAY_SIZE(threads); i++) {
		readers[i] = (struct reader){ fm_memory_get(memory), 0 };
		REQUIRE(!pthread_create(&threads[i], NULL, reader_thread,
					&readers[i]));
	}
	/* Closed for the one who opened it; the readers go on. */
	fm_memory_put(memory);
	for (size_t i = 0; i < FM_ARRAY_SIZE(threads); i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQUAL(readers[i].wrong, 0);
	}
	close(fd);
}

/* A live kernel of which RAM is mapped and vmalloc memory is not. */
static void test_live_vmalloc_is_read_through_mapped_ram(void)
{
	static const char vmcoreinfo[] =
		"PAGESIZE=4096\n"
		"SYMBOL(swapper_pg_dir)=ffffffff80000000\n"
		"NUMBER(phys_base)=0\n";
	struct fm_elf_core core = core_of("ffff888000000000 4000 0 4000\n"
					  "ffffc90000000000 2000 8000 2000");
	struct fm_memory_options options = { 0 };
	uint64_t *table = (uint64_t *)bytes;
	struct fm_source *source;
	struct fm_memory *memory;
	struct fm_memory_stats stats;
	unsigned char buf[16];
	struct fm_error err;

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = i % 251 + 1;
	memset(bytes, 0, 0x3000);
	core.is_kcore = true;
	core.has_vmcoreinfo = true;
	core.segments[0].has_physical_address = true;
	fm_vmcoreinfo_parse(&core.vmcoreinfo, vmcoreinfo,
			    sizeof(vmcoreinfo) - 1);
	/* The tables of 0xffffc90000000000 share a page: 0, 0x1000, 0x2000;
	 * the huge page of 2 MiB at 0 is RAM itself. */
	table[0x192] = 0x1003;
	table[0x1000 / 8] = 0x2003;
	table[0x2000 / 8] = 0x00e3;
	REQUIRE(!fm_source_mem_create(bytes, BYTES, true, UINT64_MAX, 0,
				      &source, &err));
	REQUIRE(!fm_memory_create(source, &core, &options, &memory, &err));
	CHECK(memory->translates);
	CHECK(!memory->has_tlb);
	for (uint64_t i = 1; i <= 3; i++) {
		CHECK(!fm_memory_read(memory, buf, 0xffffc90000001ff8, 8, false,
				      &err));
		CHECK(!memcmp(buf, bytes + 0x1ff8, 8));
		fm_memory_get_stats(memory, &stats);
		/* Walked anew each time, and no system call. */
		CHECK_EQUAL(stats.walks, i);
		CHECK_EQUAL(stats.syscalls, 0);
	}
	/* The mapping goes away: the kernel is asked, and here it has nothing
	 * at that offset of the file. */
	table[0x2000 / 8] = 0;
	CHECK(fm_memory_read(memory, buf, 0xffffc90000001ff8, 8, false, &err));
	CHECK_EQUAL(err.address, 0xffffc90000001ff8);
	fm_memory_put(memory);
}

static void test_create_that_fails_leaves_the_callers_things_alone(void)
{
	struct fm_elf_core core = core_of("1000 100 0 100");
	struct fm_memory_options options = { .mmap = FM_MMAP_ALWAYS };
	struct fm_source *source;
	struct fm_memory *memory;
	struct fm_error err;

	REQUIRE(!fm_source_mem_create(bytes, BYTES, false, UINT64_MAX, 0,
				      &source, &err));
	CHECK(fm_memory_create(source, &core, &options, &memory, &err));
	CHECK_EQUAL(err.code, FM_ERROR_OS);
	CHECK_EQUAL(core.nr_segments, 1);
	fm_elf_core_deinit(&core);
	fm_source_destroy(source);
}

static const struct test_case cases[] = {
	{ "a read over two segments", test_read_over_two_segments },
	{ "the first address that can't be read",
	  test_first_address_that_cant_be_read },
	{ "kernel memory that was not saved is zeros",
	  test_kernel_memory_that_was_not_saved_is_zeros },
	{ "not saved is decided before the file is read",
	  test_not_saved_is_decided_before_the_file_is_read },
	{ "an error of the source", test_error_of_the_source },
	{ "reads wrap at the end of the address space",
	  test_reads_wrap_at_the_end_of_the_address_space },
	{ "tags of aarch64 addresses", test_tags_of_aarch64_addresses },
	{ "strings", test_strings },
	{ "a long string", test_long_string },
	{ "counters", test_counters },
	{ "a file that is cut while it is mapped",
	  test_file_that_is_cut_while_it_is_mapped },
	{ "a file that is cut in a page is noticed",
	  test_file_that_is_cut_in_a_page_is_noticed },
	{ "a file that grows", test_file_that_grows },
	{ "mapped by ranges, as /proc/kcore is",
	  test_mapped_by_ranges_as_kcore_is },
	{ "bulk reads go to pread", test_bulk_reads_go_to_pread },
	{ "threads read and the last one closes",
	  test_threads_read_and_the_last_one_closes },
	{ "live vmalloc memory is read through mapped RAM",
	  test_live_vmalloc_is_read_through_mapped_ram },
	{ "a create that fails leaves the caller's things alone",
	  test_create_that_fails_leaves_the_callers_things_alone },
};
TEST_MAIN("test_memory", cases)
