// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Reads C strings: in chunks, also where drgn reads them byte by byte.
 * Does not read past the page of the last byte that belongs to the string.
 * Built for names of 5 to 60 characters.
 */

#include <string.h>
#include <time.h>

#include "memory_internal.h"

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
	struct fm_translation translation;
	size_t saved, n;

	count = fm_min_u64(count, FM_MEMORY_STRING_CHUNK);
	count = fm_min_u64(count,
			   FM_MEMORY_PAGE_SIZE - address % FM_MEMORY_PAGE_SIZE);
	if (!piece && !physical && memory->translates) {
		count = fm_min_u64(count - 1,
				   fm_segment_index_gap_last(
					   &memory->indexes[0], address) -
					   address) +
			1;
		if (fm_memory_walk(memory, address, &translation, err))
			return -1;
		return fm_memory_read_string_chunk(
			memory, buf, translation.physical, count, true, err);
	}
	if (!piece) {
		fm_error_fault(err,
			       physical ? FM_FAULT_OUTSIDE : FM_FAULT_UNMAPPED,
			       address, 0);
		return -1;
	}
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

static uint64_t fm_memory_run_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Whether what was read ahead has address and may still be handed out. */
static bool fm_memory_run_has(const struct fm_memory *memory,
			      const struct fm_memory_run *run, uint64_t address)
{
	return address - run->first < run->size &&
	       run->generation == fm_page_cache_generation(&memory->cache) &&
	       fm_memory_run_now() - run->stamp <= FM_MEMORY_RUN_MAX_AGE;
}

/* Read ahead from address on; what can't be read is for others to say. */
static void fm_memory_run_fill(struct fm_memory *memory,
			       struct fm_memory_run *run, uint64_t address,
			       bool physical)
{
	struct fm_error ignored;
	ssize_t n;

	run->first = address;
	run->generation = fm_page_cache_generation(&memory->cache);
	run->stamp = fm_memory_run_now();
	n = fm_memory_read_string_chunk(memory, run->bytes, address,
					FM_MEMORY_STRING_CHUNK, physical,
					&ignored);
	run->size = n > 0 ? n : 0;
}

/* The run is this thread's. */
static bool fm_memory_run_read(struct fm_memory *memory,
			       struct fm_memory_run *run, char *buf,
			       uint64_t address, bool physical)
{
	bool goes_on = address == run->next && physical == run->physical;

	run->next = address + 1;
	run->physical = physical;
	if (!goes_on) {
		run->size = 0;
		return false;
	}
	if (!fm_memory_run_has(memory, run, address))
		fm_memory_run_fill(memory, run, address, physical);
	if (!run->size)
		return false;
	*buf = run->bytes[address - run->first];
	return true;
}

bool fm_memory_read_run(struct fm_memory *memory, char *buf, uint64_t address,
			bool physical)
{
	struct fm_memory_run *run = &memory->run;
	bool ret;

	/* The page cache does more. */
	if (fm_page_cache_is_on(&memory->cache))
		return false;
	/* Not a lock to wait for: a fork may leave the child with it taken,
	 * and a thread that finds it so loses a system call. */
	if (__atomic_exchange_n(&run->busy, 1, __ATOMIC_ACQUIRE))
		return false;
	ret = fm_memory_run_read(memory, run, buf, address, physical);
	__atomic_store_n(&run->busy, 0, __ATOMIC_RELEASE);
	return ret;
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
