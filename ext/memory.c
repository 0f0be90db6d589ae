// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Opens targets and closes them: headers, source, index and MMU put together.
 * Does not read (memory_read.c, memory_string.c) and does not know Python or
 * drgn. Built for one open a target, of up to 70,000 segments.
 */

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "memory.h"
#include "source_file.h"

FM_DEFINE_CLEANUP(core, struct fm_elf_core, fm_elf_core_deinit(&value))

static void fm_memory_destroy(struct fm_memory *memory)
{
	for (size_t i = 0; i < FM_ARRAY_SIZE(memory->indexes); i++)
		fm_segment_index_deinit(&memory->indexes[i]);
	fm_page_cache_deinit(&memory->cache);
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

/* End of the last saved byte in the file. */
static uint64_t fm_memory_extent(const struct fm_elf_core *core)
{
	uint64_t extent = 0;

	for (size_t i = 0; i < core->nr_segments; i++) {
		uint64_t end;

		if (!fm_add_u64(core->segments[i].file_offset,
				core->segments[i].file_size, &end))
			return UINT64_MAX;
		if (end > extent)
			extent = end;
	}
	return extent;
}

/* All that segments have in the file, in one piece; NULL if that is not to be
 * had. Of /proc/kcore it would be the whole address space. */
static const unsigned char *fm_memory_map_whole(struct fm_memory *memory,
						uint64_t size)
{
	int os_errno;

	return memory->core.is_kcore ?
		       NULL :
		       fm_source_borrow(memory->source, 0, size, &os_errno);
}

/* Borrow every segment from the source, as far as the file goes now. */
static int fm_memory_map_segments(struct fm_memory *memory,
				  enum fm_mmap_mode mode, struct fm_error *err)
{
	struct fm_elf_core *core = &memory->core;
	uint64_t file_size = fm_source_size(memory->source);
	uint64_t extent = fm_min_u64(fm_memory_extent(core), file_size);
	const unsigned char *whole = fm_memory_map_whole(memory, extent);

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
		if (whole)
			segment->map = whole + segment->file_offset;
		else
			segment->map = fm_source_borrow(memory->source,
							segment->file_offset,
							size, &os_errno);
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

/* Whether all virtual segments are made of whole pages. */
static bool fm_memory_has_whole_pages(const struct fm_memory *memory)
{
	const struct fm_segment_index *index = &memory->indexes[0];

	for (size_t i = 0; i < index->nr_pieces; i++) {
		if (index->pieces[i].first % FM_MEMORY_PAGE_SIZE ||
		    (index->pieces[i].last + 1) % FM_MEMORY_PAGE_SIZE)
			return false;
	}
	return true;
}

static const char *fm_memory_init_mmu(struct fm_memory *memory)
{
	const struct fm_elf_core *core = &memory->core;
	const char *why;

	if (!core->has_vmcoreinfo || !core->is_64_bit)
		return "not the memory of a 64-bit kernel";
	switch (core->machine) {
	case EM_X86_64:
		if (!fm_mmu_x86_64_init(&memory->mmu, &core->vmcoreinfo, &why))
			return why;
		break;
	case EM_AARCH64:
		if (!fm_mmu_aarch64_init(&memory->mmu, &core->vmcoreinfo,
					 core->is_little_endian, &why))
			return why;
		break;
	default:
		return "the MMU of this architecture is not known";
	}
	return NULL;
}

static void fm_memory_init_translation(struct fm_memory *memory)
{
	const char *why = fm_memory_init_mmu(memory);
	const struct fm_piece *root;

	memory->why_not_translated = why;
	if (why)
		return;
	/* Without the root nothing can be translated; without a mapping (a
	 * live kernel) a walk would cost more system calls than the kernel's
	 * own way to the same bytes. */
	root = fm_segment_index_find(&memory->indexes[1], memory->mmu.root);
	if (!root)
		memory->why_not_translated =
			"the root page table is not in the file";
	else if (memory->core.is_kcore && !root->map)
		memory->why_not_translated = "memory is not mapped";
	if (memory->why_not_translated)
		return;
	memory->translates = true;
	memory->has_tlb = !memory->core.is_kcore;
	memory->whole_pages = fm_memory_has_whole_pages(memory);
	fm_tlb_init(&memory->tlb, &memory->mmu);
}

static int fm_memory_init(struct fm_memory *memory,
			  const struct fm_memory_options *options,
			  struct fm_error *err)
{
	const struct fm_elf_core *core = &memory->core;
	enum fm_mmap_mode mode = options->mmap;

	if (fm_page_cache_init(&memory->cache, err))
		return -1;
	if (mode != FM_MMAP_NEVER && fm_memory_map_segments(memory, mode, err))
		return -1;
	for (size_t i = 0; i < FM_ARRAY_SIZE(memory->indexes); i++) {
		if (fm_segment_index_init(&memory->indexes[i], core->segments,
					  core->nr_segments,
					  memory->address_mask, i == 1, err))
			return -1;
	}
	if (options->no_translation)
		memory->why_not_translated = "translation was turned off";
	else
		fm_memory_init_translation(memory);
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
	memory->zero_fill =
		(core->has_vmcoreinfo || options->kernel) && !core->is_kcore;
	memory->address_mask = core->is_64_bit ? UINT64_MAX : UINT32_MAX;
	memory->has_address_tags =
		core->is_64_bit && core->machine == EM_AARCH64;
	memory->core = *core;
	memory->source = source;
	if (fm_memory_init(memory, options, err)) {
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

void fm_memory_get_stats(const struct fm_memory *memory,
			 struct fm_memory_stats *stats)
{
	const struct fm_memory_counters *counters = &memory->counters;
	uint64_t fast_reads = fm_counter_get(&counters->fast_reads);

	stats->reads = fast_reads + fm_counter_get(&counters->slow_reads);
	stats->bytes = fm_counter_get(&counters->bytes);
	stats->faults = fm_counter_get(&counters->faults);
	stats->syscalls = fm_counter_get(&memory->source->syscalls);
	stats->mapped_reads =
		fast_reads + fm_counter_get(&counters->slow_mapped);
	stats->sigbus = fm_counter_get(&counters->sigbus);
	stats->walks = fm_counter_get(&counters->walks);
	stats->tlb_hits = fm_counter_get(&counters->tlb_hits);
	stats->cache_hits = fm_counter_get(&counters->cache_hits);
	stats->cache_misses = fm_counter_get(&counters->cache_misses);
	stats->coalesced = fm_counter_get(&counters->coalesced);
	stats->gap_bytes = fm_counter_get(&counters->gap_bytes);
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
	fm_counter_reset(&counters->walks);
	fm_counter_reset(&counters->tlb_hits);
	fm_counter_reset(&counters->cache_hits);
	fm_counter_reset(&counters->cache_misses);
	fm_counter_reset(&counters->coalesced);
	fm_counter_reset(&counters->gap_bytes);
	fm_counter_reset(&memory->source->syscalls);
}
