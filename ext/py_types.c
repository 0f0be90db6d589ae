// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The named tuples that describe a Memory: Segment and Stats.
 * Does not compute anything. Built for reports and tests, not for loops;
 * python/drgn_fastmem/_core.pyi says what the fields mean.
 */

#include "py.h"

static PyStructSequence_Field fm_py_segment_fields[] = {
	{ "address", "virtual address of the first byte" },
	{ "size", "bytes in memory" },
	{ "physical_address", "physical address of the first byte, or None" },
	{ "file_offset", "offset of the first byte in the file" },
	{ "file_size", "bytes that were saved in the file" },
	{ "kind", "'ram', 'virtual' or 'user'" },
	{ "access", "'mmap' or 'pread'" },
	{ NULL, NULL },
};

static PyStructSequence_Desc fm_py_segment_desc = {
	.name = "drgn_fastmem.Segment",
	.doc = "A program header that describes memory (PT_LOAD).",
	.fields = fm_py_segment_fields,
	.n_in_sequence = FM_ARRAY_SIZE(fm_py_segment_fields) - 1,
};

static PyStructSequence_Field fm_py_stats_fields[] = {
	{ "reads", "reads that were asked for" },
	{ "bytes", "bytes that were handed out" },
	{ "faults", "reads that ended in a fault" },
	{ "syscalls", "system calls that were made" },
	{ "mapped_reads", "copies out of a mapping" },
	{ "sigbus", "copies that a mapping refused" },
	{ "walks", "page-table walks" },
	{ "tlb_hits", "translations that were remembered" },
	{ "cache_hits", "pages that were found in the page cache" },
	{ "cache_misses", "pages that were not" },
	{ "coalesced", "items that shared a system call with others" },
	{ "gap_bytes", "bytes that were read between items" },
	{ NULL, NULL },
};

static PyStructSequence_Desc fm_py_stats_desc = {
	.name = "drgn_fastmem.Stats",
	.doc = "What a Memory has done since it was opened or its counters "
	       "were reset.",
	.fields = fm_py_stats_fields,
	.n_in_sequence = FM_ARRAY_SIZE(fm_py_stats_fields) - 1,
};

static PyTypeObject *
fm_py_add_type(PyObject *module, PyStructSequence_Desc *desc, const char *name)
{
	PyTypeObject *type = PyStructSequence_NewType(desc);

	if (!type)
		return NULL;
	/* PyModule_AddObject takes the reference, but only if it succeeds. */
	Py_INCREF(type);
	if (PyModule_AddObject(module, name, (PyObject *)type)) {
		Py_DECREF(type);
		Py_DECREF(type);
		return NULL;
	}
	return type;
}

int fm_py_types_init(PyObject *module, struct fm_py_state *state)
{
	state->segment_type =
		fm_py_add_type(module, &fm_py_segment_desc, "Segment");
	if (!state->segment_type)
		return -1;
	state->stats_type = fm_py_add_type(module, &fm_py_stats_desc, "Stats");
	return state->stats_type ? 0 : -1;
}

/* items are new references or NULL after an error; all are taken. */
static PyObject *fm_py_fill(PyTypeObject *type, PyObject **items, Py_ssize_t n)
{
	PyObject *ret = NULL;
	bool complete = true;

	for (Py_ssize_t i = 0; i < n; i++)
		complete &= items[i] != NULL;
	if (complete)
		ret = PyStructSequence_New(type);
	for (Py_ssize_t i = 0; i < n; i++) {
		if (ret)
			PyStructSequence_SetItem(ret, i, items[i]);
		else
			Py_XDECREF(items[i]);
	}
	return ret;
}

static const char *fm_py_segment_kind(const struct fm_memory *memory,
				      const struct fm_segment *segment)
{
	if (!memory->core.has_vmcoreinfo && !memory->core.is_kcore &&
	    !memory->zero_fill)
		return "user";
	return segment->has_physical_address ? "ram" : "virtual";
}

static PyObject *fm_py_segment(struct fm_py_state *state,
			       const struct fm_memory *memory,
			       const struct fm_segment *segment)
{
	PyObject *physical_address = Py_None;
	PyObject *items[FM_ARRAY_SIZE(fm_py_segment_fields) - 1];

	if (segment->has_physical_address)
		physical_address =
			PyLong_FromUnsignedLongLong(segment->physical_address);
	else
		Py_INCREF(Py_None);
	items[0] = PyLong_FromUnsignedLongLong(segment->address);
	items[1] = PyLong_FromUnsignedLongLong(segment->size);
	items[2] = physical_address;
	items[3] = PyLong_FromUnsignedLongLong(segment->file_offset);
	items[4] = PyLong_FromUnsignedLongLong(segment->file_size);
	items[5] =
		PyUnicode_InternFromString(fm_py_segment_kind(memory, segment));
	items[6] = PyUnicode_InternFromString(segment->map ? "mmap" : "pread");
	return fm_py_fill(state->segment_type, items, FM_ARRAY_SIZE(items));
}

PyObject *fm_py_segments(struct fm_py_state *state,
			 const struct fm_memory *memory)
{
	const struct fm_elf_core *core = &memory->core;
	PyObject *ret = PyTuple_New(core->nr_segments);

	if (!ret)
		return NULL;
	for (size_t i = 0; i < core->nr_segments; i++) {
		PyObject *segment =
			fm_py_segment(state, memory, &core->segments[i]);

		if (!segment) {
			Py_DECREF(ret);
			return NULL;
		}
		PyTuple_SET_ITEM(ret, i, segment);
	}
	return ret;
}

PyObject *fm_py_stats(struct fm_py_state *state, const struct fm_memory *memory)
{
	PyObject *items[FM_ARRAY_SIZE(fm_py_stats_fields) - 1];
	struct fm_memory_stats stats;

	fm_memory_get_stats(memory, &stats);
	items[0] = PyLong_FromUnsignedLongLong(stats.reads);
	items[1] = PyLong_FromUnsignedLongLong(stats.bytes);
	items[2] = PyLong_FromUnsignedLongLong(stats.faults);
	items[3] = PyLong_FromUnsignedLongLong(stats.syscalls);
	items[4] = PyLong_FromUnsignedLongLong(stats.mapped_reads);
	items[5] = PyLong_FromUnsignedLongLong(stats.sigbus);
	items[6] = PyLong_FromUnsignedLongLong(stats.walks);
	items[7] = PyLong_FromUnsignedLongLong(stats.tlb_hits);
	items[8] = PyLong_FromUnsignedLongLong(stats.cache_hits);
	items[9] = PyLong_FromUnsignedLongLong(stats.cache_misses);
	items[10] = PyLong_FromUnsignedLongLong(stats.coalesced);
	items[11] = PyLong_FromUnsignedLongLong(stats.gap_bytes);
	return fm_py_fill(state->stats_type, items, FM_ARRAY_SIZE(items));
}
