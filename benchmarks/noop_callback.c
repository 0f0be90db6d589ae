// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The floors: native callbacks in drgn's memory reader that do next to nothing.
 *
 * With nothing to copy from, the callback says that every read succeeds and
 * leaves the buffer as it is. The answers are garbage; what a read costs is
 * drgn's own, and no reader behind a callback can be faster. With a mapping, it
 * copies from there and checks nothing: what the memory itself costs comes on
 * top.
 *
 * For benchmarks only; readers.py compiles and loads it. What it knows of
 * drgn's ABI is explained in ext/drgn_api.[ch].
 */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct drgn_error;

typedef struct drgn_error *read_fn(void *buf, uint64_t address, size_t count,
				   uint64_t offset, void *arg, bool physical);

static struct drgn_error *read_nothing(void *buf, uint64_t address,
				       size_t count, uint64_t offset, void *arg,
				       bool physical)
{
	(void)buf;
	(void)address;
	(void)count;
	(void)offset;
	(void)arg;
	(void)physical;
	return NULL;
}

/* offset counts from the address of the segment. */
static struct drgn_error *read_copy(void *buf, uint64_t address, size_t count,
				    uint64_t offset, void *arg, bool physical)
{
	(void)address;
	(void)physical;
	memcpy(buf, (const char *)arg + offset, count);
	return NULL;
}

/*
 * Map a file for good; NULL if that fails.
 */
void *noop_map(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *map;

	if (fd < 0)
		return NULL;
	map = fstat(fd, &st) ?
		      MAP_FAILED :
		      mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return map == MAP_FAILED ? NULL : map;
}

/*
 * Lay a callback over size bytes at address of the Program whose Python object
 * has head_size and object_size: the one that copies from map, or, if that is
 * NULL, the one that does nothing. Returns what went wrong, NULL if nothing.
 */
const char *noop_attach(const char *library, char *object, size_t head_size,
			size_t object_size, uint64_t address, uint64_t size,
			void *map)
{
	struct drgn_error *(*add_memory_segment)(void *prog, uint64_t address,
						 uint64_t size, read_fn *fn,
						 void *arg, bool physical);
	const char *(*program_platform)(void *prog);
	void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
	char *prog = object + head_size;
	void *add, *get_platform;
	const char *platform;

	if (!handle)
		return "drgn's extension module is not loaded";
	add = dlsym(handle, "drgn_program_add_memory_segment");
	get_platform = dlsym(handle, "drgn_program_platform");
	dlclose(handle);
	if (!add || !get_platform)
		return "this drgn exports no C API";
	memcpy(&add_memory_segment, &add, sizeof(add));
	memcpy(&program_platform, &get_platform, sizeof(get_platform));
	platform = program_platform(prog);
	if (platform <= object || platform >= object + object_size)
		return "this drgn keeps its program elsewhere";
	if (add_memory_segment(prog, address, size,
			       map ? read_copy : read_nothing, map, false))
		return "drgn did not take the segment";
	return NULL;
}
