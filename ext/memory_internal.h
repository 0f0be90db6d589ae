/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * What the files of the memory share. Not for anybody above them.
 */

#ifndef FM_MEMORY_INTERNAL_H
#define FM_MEMORY_INTERNAL_H

#include "memory.h"

/* Where in the file the byte at address is; false if no file is so long. */
static inline bool fm_piece_offset(const struct fm_piece *piece,
				   uint64_t address, uint64_t *offset)
{
	return fm_add_u64(piece->file_offset, address - piece->first, offset);
}

/* How many of the count bytes at address, which piece holds, are in the file.
 */
static inline size_t fm_piece_saved(const struct fm_piece *piece,
				    uint64_t address, size_t count)
{
	uint64_t skip = address - piece->first;

	return skip < piece->file_size ?
		       fm_min_u64(count, piece->file_size - skip) :
		       0;
}

/* The part of a piece that lies in one page of the address space. */
struct fm_memory_page {
	uint64_t first;
	/* Of its first byte, in the file. */
	uint64_t offset;
	/* Bytes that were saved. */
	size_t size;
};

/*
 * The page of address. Pages end where their piece does: what follows in the
 * file is other memory, or none. False if no file is so long.
 */
static inline bool fm_memory_page_of(const struct fm_piece *piece,
				     uint64_t address,
				     struct fm_memory_page *page)
{
	uint64_t first = address & -(uint64_t)FM_MEMORY_PAGE_SIZE;
	uint64_t last = address | (FM_MEMORY_PAGE_SIZE - 1);

	if (first < piece->first)
		first = piece->first;
	page->first = first;
	page->size = fm_piece_saved(piece, first,
				    fm_min_u64(last, piece->last) - first + 1);
	return fm_piece_offset(piece, first, &page->offset);
}

/* So many reads were answered, with so many bytes. */
static inline void fm_memory_count_reads(struct fm_memory *memory,
					 uint64_t reads, uint64_t bytes)
{
	fm_counter_add(&memory->counters.slow_reads, reads);
	fm_counter_add(&memory->counters.bytes, bytes);
}

/*
 * Read count bytes, at least one, that piece has in the file. Returns how many
 * leading ones were read; if fewer, err says what is wrong with the first that
 * was not.
 */
size_t fm_memory_read_saved(struct fm_memory *memory,
			    const struct fm_piece *piece, void *buf,
			    uint64_t address, size_t count,
			    struct fm_error *err);

/* The same, past the page cache: from the mapping if that is allowed, else from
 * the source. */
size_t fm_memory_read_source(struct fm_memory *memory,
			     const struct fm_piece *piece, void *buf,
			     uint64_t address, size_t count,
			     struct fm_error *err);

/* The same through the page cache, which is on. */
size_t fm_memory_read_cached(struct fm_memory *memory,
			     const struct fm_piece *piece, void *buf,
			     uint64_t address, size_t count,
			     struct fm_error *err);

/* Read the byte at address as one of a string that is read byte by byte; false,
 * with nothing read, if it is not. */
bool fm_memory_read_run(struct fm_memory *memory, char *buf, uint64_t address,
			bool physical);

/* Read a range that does not wrap, from wherever it is; counts no read. */
int fm_memory_read_pieces(struct fm_memory *memory, void *buf, uint64_t address,
			  size_t count, bool physical, struct fm_error *err);

/* fm_translate through the TLB; only if the memory translates. */
int fm_memory_walk(struct fm_memory *memory, uint64_t address,
		   struct fm_translation *ret, struct fm_error *err);

#endif /* FM_MEMORY_INTERNAL_H */
