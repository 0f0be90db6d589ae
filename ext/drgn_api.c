// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Finds libdrgn's C API, checks it, and is drgn's reader from then on.
 * Does not decide which file belongs to a Program.
 * Built for the callback, which drgn calls for every field that a script
 * touches: no Python object, no allocation, the GIL neither taken nor dropped.
 */

#include <dlfcn.h>
#include <string.h>

#include "drgn_api.h"
#include "overlay.h"

static int fm_drgn_api_symbol(void *handle, const char *name, void *slot,
			      struct fm_error *err)
{
	void *symbol = dlsym(handle, name);

	if (!symbol)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "this drgn does not export %s", name);
	/* POSIX lets a symbol's address be a function pointer (dlsym(3)); C
	 * has no cast for it. */
	memcpy(slot, &symbol, sizeof(symbol));
	return 0;
}

int fm_drgn_api_load(struct fm_drgn_api *api, const char *library_path,
		     struct fm_error *err)
{
	void *handle = dlopen(library_path, RTLD_LAZY | RTLD_NOLOAD);
	int ret;

	if (!handle)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "drgn's extension module is not loaded");
	/* dlsym looks in what the module links too, for builds with a
	 * libdrgn.so of its own. */
	ret = fm_drgn_api_symbol(handle, "drgn_program_add_memory_segment",
				 &api->add_memory_segment, err) ||
	      fm_drgn_api_symbol(handle, "drgn_error_create_fault",
				 &api->create_fault, err) ||
	      fm_drgn_api_symbol(handle, "drgn_program_platform",
				 &api->program_platform, err) ||
	      fm_drgn_api_symbol(handle, "drgn_error_destroy",
				 &api->error_destroy, err);
	/* Python never unloads the module, so this is not the last handle. */
	dlclose(handle);
	return ret ? -1 : 0;
}

int fm_drgn_api_program(const struct fm_drgn_api *api, void *object,
			size_t head_size, size_t object_size,
			struct drgn_program **ret, struct fm_error *err)
{
	struct drgn_program *prog = (void *)((char *)object + head_size);
	uintptr_t platform = (uintptr_t)api->program_platform(prog);

	if (!platform)
		return fm_error_set(err, FM_ERROR_ARGUMENT,
				    "the program has no platform yet");
	/* drgn_program_platform gives the address of a member, so it is
	 * inside the object if, and very likely only if, prog is. */
	if (platform <= (uintptr_t)object ||
	    platform >= (uintptr_t)object + object_size)
		return fm_error_set(err, FM_ERROR_FORMAT,
				    "this drgn keeps its program elsewhere");
	*ret = prog;
	return 0;
}

static struct drgn_error *fm_drgn_api_read(void *buf, uint64_t address,
					   size_t count, uint64_t offset,
					   void *arg, bool physical)
{
	struct fm_drgn_attachment *attachment = arg;
	struct fm_error err;

	(void)offset;
	if (FM_LIKELY(!fm_memory_read_range(attachment->memory, buf, address,
					    count, physical, &err)))
		return NULL;
	return attachment->api.create_fault(err.message, err.address);
}

static int fm_drgn_api_add_range(struct fm_drgn_attachment *attachment,
				 struct drgn_program *prog, uint64_t first,
				 uint64_t last, bool physical,
				 struct fm_error *err)
{
	const struct fm_drgn_api *api = &attachment->api;
	uint64_t size = last - first + 1;
	struct drgn_error *error;

	/* All 2^64 bytes have no size; the last byte goes by itself. */
	if (size == 0) {
		if (fm_drgn_api_add_range(attachment, prog, last, last,
					  physical, err))
			return -1;
		size = UINT64_MAX;
	}
	error = api->add_memory_segment(prog, first, size, fm_drgn_api_read,
					attachment, physical);
	if (!error)
		return 0;
	api->error_destroy(error);
	return fm_error_set(err, FM_ERROR_ARGUMENT,
			    "drgn did not take a memory segment");
}

int fm_drgn_api_attach(struct fm_drgn_attachment *attachment,
		       struct drgn_program *prog, struct fm_error *err)
{
	for (int physical = 0; physical < 2; physical++) {
		struct fm_overlay overlay;
		uint64_t first, last;

		fm_overlay_init(&overlay, attachment->memory, physical, false);
		while (fm_overlay_next(&overlay, &first, &last)) {
			if (fm_drgn_api_add_range(attachment, prog, first, last,
						  physical, err))
				return -1;
		}
	}
	return 0;
}
