// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Opens targets and reads what the fast path in memory.h leaves: ranges over
 * several pieces, bytes that were not saved, files that are not mapped,
 * mappings that fault.
 * Does not know Python or drgn. Built for millions of small reads that the
 * header answers, and for preads where there is no mapping.
 */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"
#include "source_file.h"

/*
 * The smallest page of any architecture here. A string is read no further than
 * to the end of its page: the next one may be a hole, or a device's.
 */
#define FM_MEMORY_PAGE_SIZE 4096

/* Most strings in a kernel are shorter. */
#define FM_MEMORY_STRING_CHUNK 256

FM_DEFINE_CLEANUP(core, struct fm_elf_core, fm_elf_core_deinit(&value))

static void fm_memory_destroy(struct fm_memory *memory)
{
	for (size_t i = 0; i < FM_ARRAY_SIZE(memory->indexes); i++)
		fm_segment_index_deinit(&memory->indexes[i]);
	fm_elf_core_deinit(&memory->core);
	fm_source_destroy(memory->source);
	free(memory);
}

struct fm_memory *fm_memory_get(struct fm_memory *memory)
{
	__atomic_fetch_add(&memory->references, 1, __ATOMIC_RELAXED);
	return memory;
}

void fm_memory_put(struct fm_memory *memory)
{
	if (memory &&
	    __atomic_sub_fetch(&memory->references, 1, __ATOMIC_ACQ_REL) == 0)
		fm_memory_destroy(memory);
}

/* Borrow every segment from the source, as far as the file goes now. */
static int fm_memory_map_segments(struct fm_memory *memory,
				  enum fm_mmap_mode mode, struct fm_error *err)
{
	struct fm_elf_core *core = &memory->core;
	uint64_t file_size = fm_source_size(memory->source);

	memory->mapped_file_size = file_size;
	for (size_t i = 0; i < core->nr_segments; i++) {
		struct fm_segment *segment = &core->segments[i];
		uint64_t size = 0;
		int os_errno;

		if (segment->file_offset < file_size)
			size = fm_min_u64(segment->file_size,
					  file_size - segment->file_offset);
		if (size == 0)
			continue;
		segment->map = fm_source_borrow(memory->source,
						segment->file_offset, size,
						&os_errno);
		if (segment->map) {
			segment->map_size = size;
			memory->any_mapped = true;
		} else if (mode == FM_MMAP_ALWAYS) {
			return fm_error_os(err, os_errno ? os_errno : ENODEV,
					   "a segment can't be mapped");
		}
	}
	if (memory->any_mapped)
		return fm_fault_guard_check(err);
	return 0;
}

static int fm_memory_init(struct fm_memory *memory, enum fm_mmap_mode mode,
			  struct fm_error *err)
{
	const struct fm_elf_core *core = &memory->core;

	if (mode != FM_MMAP_NEVER && fm_memory_map_segments(memory, mode, err))
		return -1;
	for (size_t i = 0; i < FM_ARRAY_SIZE(memory->indexes); i++) {
		if (fm_segment_index_init(&memory->indexes[i], core->segments,
					  core->nr_segments,
					  memory->address_mask, i == 1, err))
			return -1;
	}
	return 0;
}

int fm_memory_create(struct fm_source *source, struct fm_elf_core *core,
		     const struct fm_memory_options *options,
		     struct fm_memory **ret, struct fm_error *err)
{
	struct fm_memory *memory = calloc(1, sizeof(*memory));

	if (!memory)
		return fm_error_no_memory(err);
	memory->references = 1;
	memory->maps_valid = true;
	memory->zero_fill = (core->has_vmcoreinfo || options->kernel) &&
			    !core->is_kcore;
	memory->address_mask = core->is_64_bit ? UINT64_MAX : UINT32_MAX;
	memory->has_address_tags = core->is_64_bit &&
				   core->machine == EM_AARCH64;
	memory->core = *core;
	memory->source = source;
	if (fm_memory_init(memory, options->mmap, err)) {
		/* What the caller brought stays the caller's, unmapped. */
		for (size_t i = 0; i < core->nr_segments; i++) {
			core->segments[i].map = NULL;
			core->segments[i].map_size = 0;
		}
		memset(&memory->core, 0, sizeof(memory->core));
		memory->source = NULL;
		fm_memory_destroy(memory);
		return -1;
	}
	memset(core, 0, sizeof(*core));
	*ret = memory;
	return 0;
}

/* End of the last saved byte in the file. */
static uint64_t fm_memory_extent(const struct fm_elf_core *core)
{
	uint64_t extent = 0;

	for (size_t i = 0; i < core->nr_segments; i++) {
		uint64_t end;

		if (fm_add_u64(core->segments[i].file_offset,
			       core->segments[i].file_size, &end) &&
		    end > extent)
			extent = end;
	}
	return extent;
}

/*
 * An open file of our own for the file behind fd, or -1. Through the link in
 * /proc, not by path: it is the same file whatever happened to its name.
 */
static int fm_memory_reopen(int fd)
{
	char link[sizeof("/proc/self/fd/") + 3 * sizeof(int)];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return open(link, O_RDONLY | O_CLOEXEC);
}

static int fm_memory_check_file_type(int fd, struct fm_error *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return fm_error_os(err, errno, "fstat");
	if (S_ISDIR(st.st_mode))
		return fm_error_os(err, EISDIR, "open");
	/* Reading anything else could wait for ever, or change it. */
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "not an ELF core file: neither a regular "
				    "file nor a block device");
	return 0;
}

int fm_memory_open(int fd, const struct fm_memory_options *options,
		   struct fm_memory **ret, struct fm_error *err)
{
	FM_CLEANUP(fm_cleanup_core) struct fm_elf_core core = { 0 };
	FM_CLEANUP(fm_cleanup_source) struct fm_source *source = NULL;
	struct fm_source_file_options file_options = {
		.map = options->mmap != FM_MMAP_NEVER,
	};
	FM_AUTO_FD int own_fd = -1;

	if (fm_memory_check_file_type(fd, err) ||
	    fm_elf_core_init(&core, fd, err))
		return -1;
	file_options.kcore = core.is_kcore;
	file_options.extent = fm_memory_extent(&core);
	if (core.is_kcore && options->shared_file) {
		own_fd = fm_memory_reopen(fd);
		if (own_fd < 0)
			file_options.lock = options->lock;
	}
	if (own_fd < 0) {
		own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (own_fd < 0)
			return fm_error_os(err, errno, "fcntl");
	}
	if (fm_source_file_create(own_fd, &file_options, &source, err))
		return -1;
	fm_steal_fd(&own_fd);
	if (fm_memory_create(source, &core, options, ret, err))
		return -1;
	source = NULL;
	return 0;
}

/* Addresses as the target's processor sees them. */
static uint64_t fm_memory_normalize(const struct fm_memory *memory,
				    uint64_t address)
{
	address &= memory->address_mask;
	/* Bit 55 chooses the half of the address space and is repeated in the
	 * byte above it. */
	if (memory->has_address_tags)
		address = (uint64_t)((int64_t)(address << 8) >> 8);
	return address;
}

int fm_memory_read(struct fm_memory *memory, void *buf, uint64_t address,
		   size_t count, bool physical, struct fm_error *err)
{
	char *p = buf;

	address = fm_memory_normalize(memory, address);
	while (count > 0) {
		size_t n = fm_min_u64(count - 1,
				      memory->address_mask - address) +
			   1;

		if (fm_memory_read_range(memory, p, address, n, physical, err))
			return -1;
		p += n;
		address = 0;
		count -= n;
	}
	return 0;
}

/*
 * Copy from the mapping of piece; false if the mapping refuses, and then the
 * caller reads the same bytes from the file, which knows more.
 */
static bool fm_memory_copy_mapped(struct fm_memory *memory,
				  const struct fm_piece *piece, void *buf,
				  uint64_t address, size_t count)
{
	if (!piece->map || address > piece->map_last ||
	    count - 1 > piece->map_last - address ||
	    count >= FM_MEMORY_BULK_SIZE || !fm_memory_maps_valid(memory))
		return false;
	if (fm_fault_guard_copy(buf, piece->map + (address - piece->first),
				count)) {
		fm_counter_add(&memory->counters.sigbus, 1);
		fm_memory_check(memory);
		return false;
	}
	fm_counter_add(&memory->counters.slow_mapped, 1);
	return true;
}

/*
 * Read count bytes that piece has in the file. Returns how many leading ones
 * were read; if fewer, err says what is wrong with the first that was not.
 */
static size_t fm_memory_read_saved(struct fm_memory *memory,
				   const struct fm_piece *piece, void *buf,
				   uint64_t address, size_t count,
				   struct fm_error *err)
{
	uint64_t offset;
	int os_errno;
	size_t n;

	if (fm_memory_copy_mapped(memory, piece, buf, address, count))
		return count;
	if (!fm_add_u64(piece->file_offset, address - piece->first, &offset)) {
		fm_error_fault(err, FM_FAULT_IO, address, EOVERFLOW);
		return 0;
	}
	n = fm_source_read(memory->source, buf, offset, count, &os_errno);
	if (n < count)
		fm_error_fault(err, os_errno ? FM_FAULT_IO : FM_FAULT_SHORT,
			       address + n, os_errno);
	return n;
}

/* How many of the count bytes at address, which piece holds, are in the file. */
static size_t fm_piece_saved(const struct fm_piece *piece, uint64_t address,
			     size_t count)
{
	uint64_t skip = address - piece->first;

	return skip < piece->file_size ?
		       fm_min_u64(count, piece->file_size - skip) :
		       0;
}

static int fm_memory_read_piece(struct fm_memory *memory,
				const struct fm_piece *piece, char *buf,
				uint64_t address, size_t count,
				struct fm_error *err)
{
	size_t saved = fm_piece_saved(piece, address, count);

	if (saved < count && !memory->zero_fill)
		return fm_error_fault(err, FM_FAULT_EXCLUDED, address + saved,
				      0);
	if (saved && fm_memory_read_saved(memory, piece, buf, address, saved,
					  err) < saved)
		return -1;
	memset(buf + saved, 0, count - saved);
	return 0;
}

int fm_memory_read_slow(struct fm_memory *memory, void *buf, uint64_t address,
			size_t count, bool physical, struct fm_error *err)
{
	struct fm_segment_index *index = &memory->indexes[physical];
	size_t total = count;
	char *p = buf;
	int ret = 0;

	while (count > 0 && !ret) {
		const struct fm_piece *piece =
			fm_segment_index_find(index, address);
		size_t n;

		if (!piece) {
			ret = fm_error_fault(err, FM_FAULT_UNMAPPED, address,
					     0);
			break;
		}
		n = fm_min_u64(count - 1, piece->last - address) + 1;
		ret = fm_memory_read_piece(memory, piece, p, address, n, err);
		p += n;
		address += n;
		count -= n;
	}
	fm_counter_add(&memory->counters.slow_reads, 1);
	if (ret)
		fm_counter_add(&memory->counters.faults, 1);
	else
		fm_counter_add(&memory->counters.bytes, total);
	return ret;
}

void fm_memory_check(struct fm_memory *memory)
{
	struct fm_error ignored;

	/* If the handler can't be put back, the process is no worse off than
	 * any other that maps files. */
	(void)fm_fault_guard_check(&ignored);
	if (memory->mapped_file_size != UINT64_MAX &&
	    fm_source_size(memory->source) < memory->mapped_file_size)
		__atomic_store_n(&memory->maps_valid, false, __ATOMIC_RELAXED);
}

/*
 * Read up to count bytes of a string into buf: as many as are there, at least
 * one, or -1. They end at the end of their piece and of their page.
 */
static ssize_t fm_memory_read_string_chunk(struct fm_memory *memory, char *buf,
					   uint64_t address, size_t count,
					   bool physical, struct fm_error *err)
{
	const struct fm_piece *piece =
		fm_segment_index_find(&memory->indexes[physical], address);
	size_t saved, n;

	if (!piece) {
		fm_error_fault(err, FM_FAULT_UNMAPPED, address, 0);
		return -1;
	}
	count = fm_min_u64(count, FM_MEMORY_STRING_CHUNK);
	count = fm_min_u64(count, FM_MEMORY_PAGE_SIZE -
					  address % FM_MEMORY_PAGE_SIZE);
	count = fm_min_u64(count - 1, piece->last - address) + 1;
	saved = fm_piece_saved(piece, address, count);
	if (saved) {
		n = fm_memory_read_saved(memory, piece, buf, address, saved,
					 err);
		return n ? (ssize_t)n : -1;
	}
	if (!memory->zero_fill) {
		fm_error_fault(err, FM_FAULT_EXCLUDED, address, 0);
		return -1;
	}
	memset(buf, 0, count);
	return count;
}

/* A string that grows. */
struct fm_string {
	char *data;
	size_t size, capacity;
};

/* Room for a chunk and a terminator behind what is there. */
static int fm_string_reserve(struct fm_string *string, struct fm_error *err)
{
	size_t capacity = string->capacity ? string->capacity : 64;
	char *data;

	while (capacity - string->size < FM_MEMORY_STRING_CHUNK + 1)
		capacity *= 2;
	if (capacity == string->capacity)
		return 0;
	data = realloc(string->data, capacity);
	if (!data)
		return fm_error_no_memory(err);
	string->data = data;
	string->capacity = capacity;
	return 0;
}

static int fm_memory_read_string(struct fm_memory *memory, uint64_t address,
				 uint64_t max_size, bool physical,
				 struct fm_string *string, struct fm_error *err)
{
	for (;;) {
		char *end, *chunk;
		ssize_t n;

		if (fm_string_reserve(string, err))
			return -1;
		chunk = string->data + string->size;
		*chunk = '\0';
		if (string->size >= max_size)
			return 0;
		address = fm_memory_normalize(memory, address);
		n = fm_memory_read_string_chunk(memory, chunk, address,
						max_size - string->size,
						physical, err);
		if (n < 0)
			return -1;
		end = memchr(chunk, '\0', n);
		if (end) {
			string->size += end - chunk;
			return 0;
		}
		string->size += n;
		address += n;
	}
}

int fm_memory_read_c_string(struct fm_memory *memory, uint64_t address,
			    uint64_t max_size, bool physical, char **ret,
			    size_t *size_ret, struct fm_error *err)
{
	struct fm_string string = { 0 };

	fm_counter_add(&memory->counters.slow_reads, 1);
	if (fm_memory_read_string(memory, address, max_size, physical, &string,
				  err)) {
		fm_counter_add(&memory->counters.faults, 1);
		free(string.data);
		return -1;
	}
	fm_counter_add(&memory->counters.bytes, string.size);
	*ret = string.data;
	*size_ret = string.size;
	return 0;
}

void fm_memory_get_stats(const struct fm_memory *memory,
			 struct fm_memory_stats *stats)
{
	const struct fm_memory_counters *counters = &memory->counters;
	uint64_t fast_reads = fm_counter_get(&counters->fast_reads);

	stats->reads = fast_reads + fm_counter_get(&counters->slow_reads);
	stats->bytes = fm_counter_get(&counters->bytes);
	stats->faults = fm_counter_get(&counters->faults);
	stats->syscalls = fm_counter_get(&memory->source->syscalls);
	stats->mapped_reads = fast_reads +
			      fm_counter_get(&counters->slow_mapped);
	stats->sigbus = fm_counter_get(&counters->sigbus);
}

void fm_memory_reset_stats(struct fm_memory *memory)
{
	struct fm_memory_counters *counters = &memory->counters;

	fm_counter_reset(&counters->fast_reads);
	fm_counter_reset(&counters->slow_reads);
	fm_counter_reset(&counters->slow_mapped);
	fm_counter_reset(&counters->bytes);
	fm_counter_reset(&counters->faults);
	fm_counter_reset(&counters->sigbus);
	fm_counter_reset(&memory->source->syscalls);
}
