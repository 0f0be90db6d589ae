// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * A source over a buffer, with a place from which on it fails.
 * Not used by the Python package; built for the C tests and the fuzzers, which
 * need sources that fail where they say.
 */

#include <string.h>

#include "source_mem.h"

struct fm_source_mem {
	struct fm_source source;
	const unsigned char *data;
	size_t size;
	bool borrowable;
	uint64_t fail_offset;
	int fail_errno;
};

static const void *fm_source_mem_borrow(struct fm_source *source,
					uint64_t offset, uint64_t size,
					int *os_errno)
{
	struct fm_source_mem *mem = (struct fm_source_mem *)source;

	*os_errno = 0;
	if (!mem->borrowable || offset > mem->size ||
	    size > mem->size - offset || size > mem->fail_offset ||
	    offset > mem->fail_offset - size)
		return NULL;
	return mem->data + offset;
}

static size_t fm_source_mem_read(struct fm_source *source, void *buf,
				 uint64_t offset, size_t size, int *os_errno)
{
	struct fm_source_mem *mem = (struct fm_source_mem *)source;
	uint64_t end = fm_min_u64(mem->size, mem->fail_offset);
	size_t n;

	fm_counter_add(&source->syscalls, 1);
	n = offset < end ? fm_min_u64(size, end - offset) : 0;
	if (n)
		memcpy(buf, mem->data + offset, n);
	*os_errno = n < size && offset + n >= mem->fail_offset ?
			    mem->fail_errno :
			    0;
	return n;
}

static uint64_t fm_source_mem_size(struct fm_source *source)
{
	return ((struct fm_source_mem *)source)->size;
}

static void fm_source_mem_destroy(struct fm_source *source)
{
	free(source);
}

static const struct fm_source_ops fm_source_mem_ops = {
	.borrow = fm_source_mem_borrow,
	.read = fm_source_mem_read,
	.size = fm_source_mem_size,
	.destroy = fm_source_mem_destroy,
};

int fm_source_mem_create(const void *data, size_t size, bool borrowable,
			 uint64_t fail_offset, int fail_errno,
			 struct fm_source **ret, struct fm_error *err)
{
	struct fm_source_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return fm_error_no_memory(err);
	mem->source.ops = &fm_source_mem_ops;
	mem->data = data;
	mem->size = size;
	mem->borrowable = borrowable;
	mem->fail_offset = fail_offset;
	mem->fail_errno = fail_errno;
	*ret = &mem->source;
	return 0;
}
