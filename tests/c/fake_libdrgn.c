// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * A stand-in for drgn's extension module, for test_drgn_api.c: the functions
 * that drgn_api.c looks for, which write down what they were called with.
 * Compiled with -DWITHOUT_name it lacks one of them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_segment {
	uint64_t address, size;
	void *read_fn;
	void *arg;
	bool physical;
};

struct fake_segment fake_segments[64];
size_t fake_nr_segments;
size_t fake_refuse_at = SIZE_MAX;
unsigned int fake_nr_destroyed;
uint64_t fake_fault_address;
void *fake_platform;

#ifndef WITHOUT_add_memory_segment
void *drgn_program_add_memory_segment(void *prog, uint64_t address,
				      uint64_t size, void *read_fn, void *arg,
				      bool physical)
{
	(void)prog;
	if (fake_nr_segments == fake_refuse_at)
		return &fake_refuse_at;
	fake_segments[fake_nr_segments++] =
		(struct fake_segment){ address, size, read_fn, arg, physical };
	return NULL;
}
#endif

#ifndef WITHOUT_create_fault
void *drgn_error_create_fault(const char *message, uint64_t address)
{
	(void)message;
	fake_fault_address = address;
	return &fake_fault_address;
}
#endif

#ifndef WITHOUT_platform
const void *drgn_program_platform(void *prog)
{
	(void)prog;
	return fake_platform;
}
#endif

#ifndef WITHOUT_error_destroy
void drgn_error_destroy(void *error)
{
	(void)error;
	fake_nr_destroyed++;
}
#endif
