/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * What the C tests share: CHECK, a table of cases whose names say situations,
 * and the line of counts that the runner adds up.
 */

#ifndef FM_TEST_H
#define FM_TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool test_failed_;

/* Goes on after a failure, so that one run shows all of them. */
#define CHECK(condition)                                                       \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__,     \
				__LINE__, #condition);                         \
			test_failed_ = true;                                   \
		}                                                              \
	} while (0)

#define CHECK_EQUAL(a, b)                                                      \
	do {                                                                   \
		unsigned long long a_ = (unsigned long long)(a);               \
		unsigned long long b_ = (unsigned long long)(b);               \
		if (a_ != b_) {                                                \
			fprintf(stderr, "%s:%d: %s is %#llx, %s is %#llx\n",   \
				__FILE__, __LINE__, #a, a_, #b, b_);           \
			test_failed_ = true;                                   \
		}                                                              \
	} while (0)

/* For what a test can't go on without. */
#define REQUIRE(condition)                                                     \
	do {                                                                   \
		if (!(condition)) {                                            \
			fprintf(stderr, "%s:%d: needed, not true: %s\n",       \
				__FILE__, __LINE__, #condition);               \
			abort();                                               \
		}                                                              \
	} while (0)

struct test_case {
	const char *situation;
	void (*run)(void);
};

static inline int test_run(const char *name, const struct test_case *cases,
			   size_t nr_cases)
{
	unsigned int failed = 0;

	for (size_t i = 0; i < nr_cases; i++) {
		test_failed_ = false;
		cases[i].run();
		if (test_failed_) {
			fprintf(stderr, "FAILED: %s\n", cases[i].situation);
			failed++;
		}
	}
	printf("%s: %zu passed, %u failed\n", name, nr_cases - failed, failed);
	return failed ? 1 : 0;
}

#define TEST_MAIN(name, cases)                                                 \
	int main(void)                                                         \
	{                                                                      \
		return test_run(name, cases,                                   \
				sizeof(cases) / sizeof((cases)[0]));           \
	}

/* The same numbers each time: xorshift64. */
static inline uint64_t test_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

#endif /* FM_TEST_H */
