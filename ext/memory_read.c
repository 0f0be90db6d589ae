// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Reads what the fast path in memory.h leaves: ranges over several pieces,
 * bytes that were not saved, files that are not mapped, mappings that fault,
 * addresses that have to be walked.
 * Does not open anything. Built for preads where there is no mapping, and for
 * the first read of a page that the TLB does not know.
 */

#include <errno.h>
#include <string.h>

#include "memory_internal.h"

int fm_memory_read(struct fm_memory *memory, void *buf, uint64_t address,
		   size_t count, bool physical, struct fm_error *err)
{
	char *p = buf;

	address = fm_memory_normalize(memory, address);
	while (count > 0) {
		size_t n =
			fm_min_u64(count - 1, memory->address_mask - address) +
			1;

		if (fm_memory_read_range(memory, p, address, n, physical, err))
			return -1;
		p += n;
		address = 0;
		count -= n;
	}
	return 0;
}

size_t fm_memory_read_source(struct fm_memory *memory,
			     const struct fm_piece *piece, void *buf,
			     uint64_t address, size_t count,
			     struct fm_error *err)
{
	uint64_t offset;
	int os_errno;
	size_t n;

	if (fm_piece_is_mapped(piece, address, count) &&
	    count < FM_MEMORY_BULK_SIZE && fm_memory_maps_valid(memory)) {
		if (!fm_fault_guard_copy(buf,
					 piece->map + (address - piece->first),
					 count)) {
			fm_counter_add(&memory->counters.slow_mapped, 1);
			return count;
		}
		/* Where the mapping refuses, the file knows more: an answer,
		 * an errno, or that it has become shorter. */
		fm_counter_add(&memory->counters.sigbus, 1);
		fm_memory_check(memory);
	}
	if (!fm_piece_offset(piece, address, &offset)) {
		fm_error_fault(err, FM_FAULT_IO, address, EOVERFLOW);
		return 0;
	}
	n = fm_source_read(memory->source, buf, offset, count, &os_errno);
	if (n < count)
		fm_error_read(err, address + n, os_errno);
	return n;
}

/*
 * Bulk reads are no business of the cache's: they would push out all that is in
 * it, and a system call for so much is cheap. A snapshot needs them.
 */
size_t fm_memory_read_saved(struct fm_memory *memory,
			    const struct fm_piece *piece, void *buf,
			    uint64_t address, size_t count,
			    struct fm_error *err)
{
	if (fm_page_cache_is_on(&memory->cache) &&
	    !fm_memory_is_mapped(memory, piece, address, count) &&
	    (count < FM_MEMORY_BULK_SIZE ||
	     fm_page_cache_in_snapshot(&memory->cache)))
		return fm_memory_read_cached(memory, piece, buf, address, count,
					     err);
	return fm_memory_read_source(memory, piece, buf, address, count, err);
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

/* Read a page-table entry. */
static int fm_memory_read_entry(void *arg, uint64_t physical, uint64_t *entry,
				struct fm_error *err)
{
	struct fm_memory *memory = arg;
	const struct fm_piece *piece =
		fm_segment_index_find(&memory->indexes[1], physical);

	if (FM_LIKELY(piece && fm_memory_copy_mapped(memory, piece, entry,
						     physical, sizeof(*entry))))
		return 0;
	/* See fm_memory_init_translation. */
	if (memory->core.is_kcore &&
	    !(piece && fm_page_cache_in_snapshot(&memory->cache) &&
	      fm_piece_is_mapped(piece, physical, sizeof(*entry))))
		return fm_error_fault(err, FM_FAULT_UNMAPPED, physical, 0);
	return fm_memory_read_pieces(memory, entry, physical, sizeof(*entry),
				     true, err);
}

int fm_memory_walk(struct fm_memory *memory, uint64_t address,
		   struct fm_translation *ret, struct fm_error *err)
{
	if (memory->has_tlb && fm_tlb_find(&memory->tlb, address, ret)) {
		fm_counter_add(&memory->counters.tlb_hits, 1);
		return 0;
	}
	fm_counter_add(&memory->counters.walks, 1);
	if (fm_translate(&memory->mmu, fm_memory_read_entry, memory, address,
			 ret, err))
		return -1;
	if (memory->has_tlb)
		fm_tlb_fill(&memory->tlb, address, ret);
	return 0;
}

/*
 * Read through the page tables. Physical memory is read when a run of it ends,
 * not page by page, and faults in it have its address: the order and the
 * address in which drgn's walker reports what it can't read
 * (linux_helper_read_vm in libdrgn/linux_kernel_helpers.c, 0.3.0).
 */
static int fm_memory_read_translated(struct fm_memory *memory, char *buf,
				     uint64_t address, size_t count,
				     struct fm_error *err)
{
	uint64_t run = 0;
	size_t run_size = 0;

	while (count > 0) {
		struct fm_translation translation;
		size_t n;

		if (fm_memory_walk(memory, address, &translation, err))
			return -1;
		n = fm_min_u64(count - 1,
			       fm_translation_last(&translation, address) -
				       address) +
		    1;
		if (run_size && translation.physical != run + run_size) {
			if (fm_memory_read_pieces(memory, buf, run, run_size,
						  true, err))
				return -1;
			buf += run_size;
			run_size = 0;
		}
		if (!run_size)
			run = translation.physical;
		run_size += n;
		address += n;
		count -= n;
	}
	return fm_memory_read_pieces(memory, buf, run, run_size, true, err);
}

/*
 * A live kernel's vmalloc memory has no place in the file that could be mapped,
 * but its pages are RAM, which may be. False if it can't be had that way; then
 * the kernel is asked, and its answer counts.
 */
static bool fm_memory_read_live(struct fm_memory *memory,
				const struct fm_piece *piece, char *buf,
				uint64_t address, size_t count)
{
	struct fm_error ignored;

	return memory->translates && memory->core.is_kcore && !piece->map &&
	       count < FM_MEMORY_BULK_SIZE &&
	       !fm_memory_read_translated(memory, buf, address, count,
					  &ignored);
}

int fm_memory_read_pieces(struct fm_memory *memory, void *buf, uint64_t address,
			  size_t count, bool physical, struct fm_error *err)
{
	struct fm_segment_index *index = &memory->indexes[physical];
	char *p = buf;

	while (count > 0) {
		const struct fm_piece *piece =
			fm_segment_index_find(index, address);
		size_t n;
		int ret;

		if (piece) {
			n = fm_min_u64(count - 1, piece->last - address) + 1;
			ret = !physical && fm_memory_read_live(memory, piece, p,
							       address, n) ?
				      0 :
				      fm_memory_read_piece(memory, piece, p,
							   address, n, err);
		} else if (!physical && memory->translates) {
			n = fm_min_u64(count - 1, fm_segment_index_gap_last(
							  index, address) -
							  address) +
			    1;
			ret = fm_memory_read_translated(memory, p, address, n,
							err);
		} else {
			return fm_error_fault(err,
					      physical ? FM_FAULT_OUTSIDE :
							 FM_FAULT_UNMAPPED,
					      address, 0);
		}
		if (ret)
			return -1;
		p += n;
		address += n;
		count -= n;
	}
	return 0;
}

int fm_memory_read_slow(struct fm_memory *memory, void *buf, uint64_t address,
			size_t count, bool physical, struct fm_error *err)
{
	int ret = 0;

	if (count != 1 || !fm_memory_read_run(memory, buf, address, physical))
		ret = fm_memory_read_pieces(memory, buf, address, count,
					    physical, err);
	fm_counter_add(&memory->counters.slow_reads, 1);
	if (ret)
		fm_counter_add(&memory->counters.faults, 1);
	else
		fm_counter_add(&memory->counters.bytes, count);
	return ret;
}

int fm_memory_translate(struct fm_memory *memory, uint64_t address,
			uint64_t *physical, struct fm_error *err)
{
	struct fm_translation translation;
	const struct fm_piece *piece;
	const struct fm_segment *segment;

	address = fm_memory_normalize(memory, address);
	piece = fm_segment_index_find(&memory->indexes[0], address);
	if (piece) {
		segment = &memory->core.segments[piece->segment];
		if (segment->has_physical_address) {
			*physical = segment->physical_address +
				    (address - segment->address);
			return 0;
		}
	}
	if (!memory->translates)
		return fm_error_fault(err, FM_FAULT_UNMAPPED, address, 0);
	if (fm_memory_walk(memory, address, &translation, err))
		return -1;
	*physical = translation.physical;
	return 0;
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
