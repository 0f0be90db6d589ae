/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The memory of one target: the top of the plain C library. Opens a core file
 * or /proc/kcore, reads ranges and strings, counts what it does.
 *
 * A virtual address is looked up in the segments first; what none of them
 * holds goes through the page tables, if the kernel's MMU is known and its
 * physical memory is mapped. Contents are not cached unless a maximum age or a
 * snapshot asks for it: every byte that is handed out was read after the call
 * began, but for struct fm_memory_run.
 *
 * Units: addresses and sizes in bytes. "physical" chooses the address space.
 *
 * Thread rule: any number of threads may read one memory; each holds a
 * reference while it does. Nothing here takes or needs the GIL.
 */

#ifndef FM_MEMORY_H
#define FM_MEMORY_H

#include "elf_core.h"
#include "fault_guard.h"
#include "file_lock.h"
#include "page_cache.h"
#include "segment_index.h"
#include "source.h"
#include "tlb.h"

enum fm_mmap_mode {
	/* Map what can be mapped, pread the rest. */
	FM_MMAP_TRY,
	FM_MMAP_NEVER,
	/* A segment that can't be mapped is an error. */
	FM_MMAP_ALWAYS,
};

struct fm_memory_options {
	enum fm_mmap_mode mmap;
	/*
	 * This is a kernel's memory even if no note says so: bytes that were
	 * not saved are zeros, as they are in dumps with a VMCOREINFO note.
	 */
	bool kernel;
	/* Never walk page tables. */
	bool no_translation;
	/*
	 * Others read through the same open file. /proc/kcore is opened anew
	 * where that is allowed; where it is not, reads hold this lock, which
	 * the memory takes a reference of (NULL: a lock of its own).
	 */
	bool shared_file;
	struct fm_file_lock *lock;
};

struct fm_memory_counters {
	/* Reads that one mapped copy answered, and all others. */
	fm_counter fast_reads, slow_reads;
	/* Pieces of the slow reads that were copied from a mapping. */
	fm_counter slow_mapped;
	/* Bytes handed out. */
	fm_counter bytes;
	/* Reads that ended in an error. */
	fm_counter faults;
	/* Copies that a mapping refused. */
	fm_counter sigbus;
	/* Page-table walks, and those that the TLB made unnecessary. */
	fm_counter walks, tlb_hits;
	/* Pages that were found in the page cache, and that were not. */
	fm_counter cache_hits, cache_misses;
	/* Reads of a vector that shared a system call with others, and bytes
	 * that were read because they lie between two of them. */
	fm_counter coalesced, gap_bytes;
};

struct fm_memory_stats {
	uint64_t reads, bytes, faults, syscalls, mapped_reads, sigbus, walks,
		tlb_hits, cache_hits, cache_misses, coalesced, gap_bytes;
};

/* At most so many bytes of a string are read at once; most strings in a kernel
 * are shorter. */
#define FM_MEMORY_STRING_CHUNK 256

/*
 * drgn reads a C string byte by byte. Where each would be a system call, bytes
 * are read ahead once the second of them is asked for: to the end of the page
 * at most, and for at most FM_MEMORY_RUN_MAX_AGE nanoseconds.
 */
#define FM_MEMORY_RUN_MAX_AGE 100000

struct fm_memory_run {
	/* Nonzero while a thread uses the rest; others read for themselves. */
	unsigned char busy;
	bool physical;
	/* After the byte that was asked for last. */
	uint64_t next;
	/* What was read ahead, when, and the page cache's generation then. */
	uint64_t first, size, stamp, generation;
	char bytes[FM_MEMORY_STRING_CHUNK];
};

struct fm_memory {
	/* What a read needs, together. [0] virtual, [1] physical. */
	struct fm_segment_index indexes[2];
	struct fm_memory_counters counters;
	/* False once the file became shorter than its mapping: zeros that
	 * follow the new end in its last page must not be taken for data. */
	bool maps_valid;
	bool zero_fill;
	/* Virtual addresses that no segment holds are translated with mmu. */
	bool translates;
	/* Translations are remembered: not on a live kernel. */
	bool has_tlb;
	/* No virtual segment begins or ends inside a page, so a page that the
	 * TLB knows is not covered by one in part. */
	bool whole_pages;

	/* Off, unless bytes may be old. */
	struct fm_page_cache cache;
	struct fm_memory_run run;

	/* The last address: 2^32-1 or 2^64-1. */
	uint64_t address_mask;
	/* The top byte of an address is a tag (Arm ARM, "Address tagging"). */
	bool has_address_tags;

	struct fm_mmu mmu;
	struct fm_tlb tlb;
	/* Why addresses are not translated, if they are not. */
	const char *why_not_translated;

	/* Decided at open. Segments have their maps; segments is core's. */
	struct fm_elf_core core;
	struct fm_source *source;
	/* Size of the file when it was mapped. */
	uint64_t mapped_file_size;
	bool any_mapped;
	unsigned int references;
};

/*
 * Open the core file or /proc/kcore behind fd, which stays the caller's: the
 * memory has a descriptor of its own. The caller owns one reference.
 */
int fm_memory_open(int fd, const struct fm_memory_options *options,
		   struct fm_memory **ret, struct fm_error *err);

/*
 * The same over a source and headers that the caller made. On success the
 * memory owns source and what core points to (and *core is empty); on failure
 * both stay the caller's.
 */
int fm_memory_create(struct fm_source *source, struct fm_elf_core *core,
		     const struct fm_memory_options *options,
		     struct fm_memory **ret, struct fm_error *err);

struct fm_memory *fm_memory_get(struct fm_memory *memory);
/* NULL is allowed. The last reference closes the file. */
void fm_memory_put(struct fm_memory *memory);

/*
 * Read count bytes at address, as drgn's Program.read does: tags are removed,
 * addresses wrap at the end of the address space. count may be 0. On failure
 * the contents of buf are unspecified; FM_ERROR_FAULT has the first address
 * that can't be read. (Where a range was not saved, that is decided before the
 * bytes in front of it in the same segment are read, as in drgn.)
 */
int fm_memory_read(struct fm_memory *memory, void *buf, uint64_t address,
		   size_t count, bool physical, struct fm_error *err);

/*
 * Read the string at address up to its zero byte, or max_size bytes of it if
 * there is none among them. *ret is allocated with malloc, always terminated,
 * and has *size_ret bytes before its terminator.
 */
int fm_memory_read_c_string(struct fm_memory *memory, uint64_t address,
			    uint64_t max_size, bool physical, char **ret,
			    size_t *size_ret, struct fm_error *err);

/*
 * The physical address that a read of address reads: from the segment that
 * holds it, else from the page tables.
 */
int fm_memory_translate(struct fm_memory *memory, uint64_t address,
			uint64_t *physical, struct fm_error *err);

/*
 * Bytes that are not mapped may be as old as max_age nanoseconds and a step of
 * the clock (page_cache.h says which), counted back from the beginning of the
 * read; with FM_PAGE_CACHE_ANY_AGE they may be of any age. 0, which a memory
 * begins with, forgets all that were kept.
 */
void fm_memory_set_max_age(struct fm_memory *memory, uint64_t max_age);
uint64_t fm_memory_max_age(const struct fm_memory *memory);
/* What is read after this call is not older than it. */
void fm_memory_invalidate(struct fm_memory *memory);

/*
 * From begin to the end that belongs to it a page is read at most once, mapped
 * or not, and reads of it give the same bytes each time. They may be nested;
 * the outermost counts. What does not fit is FM_FAULT_FULL. Nothing more: two
 * pages are of two moments.
 */
int fm_memory_begin_snapshot(struct fm_memory *memory, struct fm_error *err);
void fm_memory_end_snapshot(struct fm_memory *memory);

void fm_memory_get_stats(const struct fm_memory *memory,
			 struct fm_memory_stats *stats);
void fm_memory_reset_stats(struct fm_memory *memory);

/* Reads of this size and more go to pread even where memory is mapped: a first
 * touch of so many pages costs more than the system call. */
#define FM_MEMORY_BULK_SIZE (64 << 10)

/* Every so many mapped reads, look at what could have changed behind them. */
#define FM_MEMORY_CHECK_INTERVAL 1024

/*
 * The smallest page of any architecture here. Nothing is read past the end of
 * the page of a byte that was asked for: the next one may be a hole, or a
 * device's.
 */
#define FM_MEMORY_PAGE_SIZE 4096

static inline bool fm_memory_maps_valid(const struct fm_memory *memory)
{
	return __atomic_load_n(&memory->maps_valid, __ATOMIC_RELAXED);
}

/* What of count bytes at address lies in one page of any architecture. */
static inline bool fm_memory_in_one_page(uint64_t address, size_t count)
{
	return count <= FM_MEMORY_PAGE_SIZE - address % FM_MEMORY_PAGE_SIZE;
}

int fm_memory_read_slow(struct fm_memory *memory, void *buf, uint64_t address,
			size_t count, bool physical, struct fm_error *err);
void fm_memory_check(struct fm_memory *memory);

/*
 * Addresses as the target's processor sees them: cut to its width, without
 * their tags.
 */
static inline uint64_t fm_memory_normalize(const struct fm_memory *memory,
					   uint64_t address)
{
	address &= memory->address_mask;
	/* Bit 55 chooses the half of the address space and is repeated in the
	 * byte above it. */
	if (memory->has_address_tags)
		address = (uint64_t)((int64_t)(address << 8) >> 8);
	return address;
}

/* Whether count bytes at address, which piece holds, have a mapping. */
static inline bool fm_piece_is_mapped(const struct fm_piece *piece,
				      uint64_t address, size_t count)
{
	return piece->map && address <= piece->map_last &&
	       count - 1 <= piece->map_last - address;
}

/* Whether they are to be copied from it. */
static inline bool fm_memory_is_mapped(const struct fm_memory *memory,
				       const struct fm_piece *piece,
				       uint64_t address, size_t count)
{
	return fm_piece_is_mapped(piece, address, count) &&
	       count < FM_MEMORY_BULK_SIZE && fm_memory_maps_valid(memory) &&
	       !fm_page_cache_in_snapshot(&memory->cache);
}

/* Copy them; false if they are not mapped, or if the mapping refuses. */
static inline bool fm_memory_copy_mapped(struct fm_memory *memory,
					 const struct fm_piece *piece,
					 void *buf, uint64_t address,
					 size_t count)
{
	return FM_LIKELY(fm_memory_is_mapped(memory, piece, address, count)) &&
	       FM_LIKELY(!fm_fault_guard_copy(
		       buf, piece->map + (address - piece->first), count));
}

/* The same for a virtual address that no segment holds but the TLB knows. */
static inline bool fm_memory_copy_translated(struct fm_memory *memory,
					     void *buf, uint64_t address,
					     size_t count)
{
	struct fm_translation translation;
	const struct fm_piece *piece;

	if (!memory->has_tlb || !memory->whole_pages ||
	    !fm_memory_in_one_page(address, count) ||
	    !fm_tlb_find(&memory->tlb, address, &translation))
		return false;
	piece = fm_segment_index_find(&memory->indexes[1],
				      translation.physical);
	if (!piece || !fm_memory_copy_mapped(memory, piece, buf,
					     translation.physical, count))
		return false;
	fm_counter_add(&memory->counters.tlb_hits, 1);
	return true;
}

/*
 * fm_memory_read for callers that know more: count is at least 1 and the range
 * neither has a tag nor wraps. In the header because drgn's callback is this
 * and little else.
 */
static inline int fm_memory_read_range(struct fm_memory *memory, void *buf,
				       uint64_t address, size_t count,
				       bool physical, struct fm_error *err)
{
	const struct fm_piece *piece =
		fm_segment_index_find(&memory->indexes[physical], address);
	fm_counter *reads = &memory->counters.fast_reads;

	if (FM_LIKELY(piece ? fm_memory_copy_mapped(memory, piece, buf, address,
						    count) :
			      !physical &&
				      fm_memory_copy_translated(
					      memory, buf, address, count))) {
		fm_counter_add(&memory->counters.bytes, count);
		fm_counter_add(reads, 1);
		if (FM_UNLIKELY(fm_counter_get(reads) %
					FM_MEMORY_CHECK_INTERVAL ==
				0))
			fm_memory_check(memory);
		return 0;
	}
	return fm_memory_read_slow(memory, buf, address, count, physical, err);
}

#endif /* FM_MEMORY_H */
