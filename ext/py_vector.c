// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The methods of Memory that read many ranges in one call.
 * Does not plan or read (memory_vector.c). Built for 10,000 ranges, in a list
 * or packed in a buffer.
 */

#include <byteswap.h>
#include <string.h>

#include "memory_vector.h"
#include "py.h"

/* With fewer items and bytes, dropping and taking the GIL is what costs. */
#define FM_PY_VECTOR_SHORT_ITEMS 256

/* Ranges of a caller, copied: other threads may change theirs meanwhile. */
struct fm_py_ranges {
	/* Pairs of address and size, or addresses. */
	uint64_t *words;
	size_t nr;
	/* Of the sizes. */
	uint64_t total;
};

FM_DEFINE_CLEANUP(py_ranges, struct fm_py_ranges, PyMem_Free(value.words))

/* A call that has dropped the GIL. */
struct fm_py_vector_call {
	PyThreadState *thread;
	bool interrupted;
};

/* What an element of a buffer of packed integers may be; bytes too, which say
 * nothing. */
static bool fm_py_is_packed(const Py_buffer *view)
{
	const char *format = view->format ? view->format : "B";

	if (*format == '@' || *format == '=' ||
	    *format == (PY_LITTLE_ENDIAN ? '<' : '>'))
		format++;
	if (!*format || format[1])
		return false;
	return view->itemsize == 1 ? strchr("Bbc", *format) != NULL :
				     view->itemsize == 8 &&
					     strchr("QqLlNnP", *format) != NULL;
}

/* The words of a buffer, copied; a multiple of multiple. */
static int fm_py_copy_packed(PyObject *object, size_t multiple,
			     const char *name, uint64_t **words,
			     size_t *nr_words)
{
	Py_buffer view;
	int ret = -1;

	*words = NULL;
	if (PyObject_GetBuffer(object, &view,
			       PyBUF_C_CONTIGUOUS | PyBUF_FORMAT))
		return -1;
	if (!fm_py_is_packed(&view)) {
		PyErr_Format(PyExc_TypeError,
			     "%s must be packed unsigned 64-bit integers, not "
			     "of format '%s'",
			     name, view.format);
	} else if (view.len % (8 * multiple)) {
		PyErr_Format(PyExc_ValueError,
			     "%s: %zd bytes are not a multiple of %zu", name,
			     view.len, 8 * multiple);
	} else {
		*words = PyMem_Malloc(view.len + 8);
		if (*words) {
			memcpy(*words, view.buf, view.len);
			*nr_words = view.len / 8;
			ret = 0;
		} else {
			PyErr_NoMemory();
		}
	}
	PyBuffer_Release(&view);
	return ret;
}

/* One (address, size), or one address, to words. */
static int fm_py_convert_item(PyObject *item, bool pairs, uint64_t *words)
{
	PyObject *pair;
	Py_ssize_t size;
	int ret = -1;

	if (!pairs)
		return fm_py_address(item, words);
	pair = PySequence_Tuple(item);
	if (!pair)
		return -1;
	if (PyTuple_GET_SIZE(pair) != 2)
		PyErr_Format(PyExc_ValueError,
			     "a range is (address, size), not %R", item);
	else if (!fm_py_address(PyTuple_GET_ITEM(pair, 0), &words[0]) &&
		 !fm_py_size(PyTuple_GET_ITEM(pair, 1), "size", &size)) {
		words[1] = size;
		ret = 0;
	}
	Py_DECREF(pair);
	return ret;
}

/* The same from any iterable. */
static int fm_py_convert_items(PyObject *object, bool pairs, uint64_t **words,
			       size_t *nr_words)
{
	/* A list of ours, so that conversions, which can run anything, can't
	 * change it. */
	PyObject *list = PySequence_List(object);
	size_t per_item = pairs ? 2 : 1, nr;

	*words = NULL;
	if (!list)
		return -1;
	nr = PyList_GET_SIZE(list);
	*words = PyMem_Malloc(nr * per_item * sizeof(**words) + 8);
	if (!*words)
		PyErr_NoMemory();
	for (size_t i = 0; *words && i < nr; i++) {
		if (fm_py_convert_item(PyList_GET_ITEM(list, i), pairs,
				       *words + i * per_item)) {
			PyMem_Free(*words);
			*words = NULL;
		}
	}
	Py_DECREF(list);
	*nr_words = nr * per_item;
	return *words ? 0 : -1;
}

static int fm_py_ranges_init(struct fm_py_ranges *ranges, PyObject *object,
			     bool pairs, const char *name)
{
	size_t nr_words;
	int ret = PyObject_CheckBuffer(object) ?
			  fm_py_copy_packed(object, pairs ? 2 : 1, name,
					    &ranges->words, &nr_words) :
			  fm_py_convert_items(object, pairs, &ranges->words,
					      &nr_words);

	if (ret)
		return -1;
	ranges->nr = nr_words / (pairs ? 2 : 1);
	ranges->total = pairs ? 0 : 8 * (uint64_t)ranges->nr;
	for (size_t i = 0; pairs && i < ranges->nr; i++) {
		uint64_t size = ranges->words[2 * i + 1];

		if (size > (uint64_t)PY_SSIZE_T_MAX - ranges->total) {
			PyErr_SetString(PyExc_OverflowError,
					"the sizes add up to more than an "
					"object can have");
			return -1;
		}
		ranges->total += size;
	}
	if (ranges->nr >= UINT32_MAX) {
		PyErr_Format(PyExc_OverflowError, "too many %s", name);
		return -1;
	}
	return 0;
}

static bool fm_py_vector_go_on(void *arg)
{
	struct fm_py_vector_call *call = arg;

	PyEval_RestoreThread(call->thread);
	call->interrupted = PyErr_CheckSignals() != 0;
	call->thread = PyEval_SaveThread();
	return !call->interrupted;
}

/* Read vector, or prefetch it; without the GIL if it may take a while. */
static int fm_py_vector_run(PyObject *self, struct fm_memory *memory,
			    struct fm_vector *vector, uint64_t total,
			    bool prefetch)
{
	struct fm_py_memory *object = (struct fm_py_memory *)self;
	struct fm_py_vector_call call = { 0 };
	struct fm_error err;
	int ret;

	if (!prefetch && vector->nr < FM_PY_VECTOR_SHORT_ITEMS &&
	    total < FM_MEMORY_BULK_SIZE) {
		ret = fm_memory_read_vector(memory, vector, &err);
	} else {
		vector->go_on = fm_py_vector_go_on;
		vector->arg = &call;
		fm_memory_get(memory);
		call.thread = PyEval_SaveThread();
		ret = prefetch ? fm_memory_prefetch(memory, vector, &err) :
				 fm_memory_read_vector(memory, vector, &err);
		PyEval_RestoreThread(call.thread);
		fm_memory_put(memory);
	}
	if (ret < 0)
		fm_py_raise(object->state, &err, NULL);
	return ret ? -1 : 0;
}

static PyObject *fm_py_vector_fault(PyObject *self,
				    const struct fm_vector_fault *fault)
{
	struct fm_error err;

	fm_error_fault(&err, fault->reason, fault->address, fault->os_errno);
	return fm_py_fault(((struct fm_py_memory *)self)->state, &err);
}

/* Raise the fault of the first item that has one; 0 if none has. */
static int fm_py_vector_raise(PyObject *self, const struct fm_vector *vector)
{
	const struct fm_vector_fault *first = vector->faults;
	PyObject *exception;

	if (!vector->nr_faults)
		return 0;
	for (size_t i = 1; i < vector->nr_faults; i++) {
		if (vector->faults[i].at < first->at)
			first = &vector->faults[i];
	}
	exception = fm_py_vector_fault(self, first);
	if (exception) {
		PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
		Py_DECREF(exception);
	}
	return -1;
}

/* Put the faults into the list in place of their items. */
static int fm_py_vector_return(PyObject *self, const struct fm_vector *vector,
			       PyObject *list)
{
	for (size_t i = 0; i < vector->nr_faults; i++) {
		PyObject *exception =
			fm_py_vector_fault(self, &vector->faults[i]);

		if (!exception)
			return -1;
		/* Takes the reference. */
		if (PyList_SetItem(list, vector->faults[i].at, exception))
			return -1;
	}
	return 0;
}

static int fm_py_on_fault(PyObject *value, bool *returns)
{
	*returns = false;
	if (!value)
		return 0;
	if (PyUnicode_Check(value)) {
		if (!PyUnicode_CompareWithASCIIString(value, "raise"))
			return 0;
		*returns = true;
		if (!PyUnicode_CompareWithASCIIString(value, "return"))
			return 0;
	}
	PyErr_Format(PyExc_ValueError,
		     "on_fault must be 'raise' or 'return', not %R", value);
	return -1;
}

/* A list of bytes objects of the sizes of ranges, and where their bytes are. */
static PyObject *fm_py_vector_list(const struct fm_py_ranges *ranges,
				   unsigned char **bufs)
{
	PyObject *list = PyList_New(ranges->nr);

	if (!list)
		return NULL;
	for (size_t i = 0; i < ranges->nr; i++) {
		PyObject *bytes = PyBytes_FromStringAndSize(
			NULL, ranges->words[2 * i + 1]);

		if (!bytes) {
			Py_DECREF(list);
			return NULL;
		}
		bufs[i] = (unsigned char *)PyBytes_AS_STRING(bytes);
		PyList_SET_ITEM(list, i, bytes);
	}
	return list;
}

PyObject *fm_py_vector_readv(PyObject *self, PyObject *const *args,
			     Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "readv",
		.names = { "ranges", "physical", "on_fault" },
		.nr_required = 1,
		.nr_positional = 2,
	};
	FM_CLEANUP(fm_cleanup_py_ranges) struct fm_py_ranges ranges = { 0 };
	struct fm_vector vector = { .stride = 2 };
	PyObject *values[3], *list = NULL;
	struct fm_memory *memory;
	unsigned char **bufs;
	int physical, ret = -1;
	bool returns;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    (physical = fm_py_physical(values[1])) < 0 ||
	    fm_py_on_fault(values[2], &returns) ||
	    fm_py_ranges_init(&ranges, values[0], true, "ranges"))
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	bufs = PyMem_Malloc((ranges.nr + 1) * sizeof(*bufs));
	if (!bufs)
		return PyErr_NoMemory();
	list = fm_py_vector_list(&ranges, bufs);
	if (list) {
		vector.addresses = ranges.words;
		vector.nr = ranges.nr;
		vector.physical = physical;
		vector.bufs = bufs;
		ret = fm_py_vector_run(self, memory, &vector, ranges.total,
				       false) ||
		      (returns ? fm_py_vector_return(self, &vector, list) :
				 fm_py_vector_raise(self, &vector));
	}
	free(vector.faults);
	PyMem_Free(bufs);
	if (ret)
		Py_CLEAR(list);
	return list;
}

/* The status of each item; a fault's reason is its number. */
static void fm_py_vector_set_status(const struct fm_vector *vector,
				    unsigned char *status)
{
	memset(status, FM_FAULT_NONE, vector->nr);
	for (size_t i = 0; i < vector->nr_faults; i++)
		status[vector->faults[i].at] = vector->faults[i].reason;
}

/* Check the buffers and read; -1 with an exception. */
static int fm_py_vector_read_into(PyObject *self,
				  const struct fm_py_ranges *ranges,
				  bool physical, const Py_buffer *out,
				  const Py_buffer *status)
{
	struct fm_vector vector = {
		.addresses = ranges->words,
		.stride = 2,
		.nr = ranges->nr,
		.physical = physical,
		.out = out->buf,
	};
	struct fm_memory *memory;
	int ret;

	if ((uint64_t)out->len != ranges->total) {
		PyErr_Format(PyExc_ValueError,
			     "out has %zd bytes, the ranges have %llu",
			     out->len, (unsigned long long)ranges->total);
		return -1;
	}
	if (status->obj && (size_t)status->len != ranges->nr) {
		PyErr_Format(PyExc_ValueError,
			     "status has %zd bytes for %zu ranges", status->len,
			     ranges->nr);
		return -1;
	}
	memory = fm_py_memory_open(self);
	if (!memory)
		return -1;
	ret = fm_py_vector_run(self, memory, &vector, ranges->total, false);
	if (!ret && status->obj)
		fm_py_vector_set_status(&vector, status->buf);
	else if (!ret)
		ret = fm_py_vector_raise(self, &vector);
	free(vector.faults);
	return ret;
}

PyObject *fm_py_vector_readv_into(PyObject *self, PyObject *const *args,
				  Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "readv_into",
		.names = { "ranges", "out", "physical", "status" },
		.nr_required = 2,
		.nr_positional = 3,
	};
	FM_CLEANUP(fm_cleanup_py_ranges) struct fm_py_ranges ranges = { 0 };
	Py_buffer out, status = { 0 };
	PyObject *values[4];
	int physical, ret = -1;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    (physical = fm_py_physical(values[2])) < 0 ||
	    fm_py_ranges_init(&ranges, values[0], true, "ranges") ||
	    PyObject_GetBuffer(values[1], &out, PyBUF_WRITABLE))
		return NULL;
	if (!values[3] || values[3] == Py_None ||
	    !PyObject_GetBuffer(values[3], &status, PyBUF_WRITABLE)) {
		ret = fm_py_vector_read_into(self, &ranges, physical, &out,
					     &status);
		PyBuffer_Release(&status);
	}
	PyBuffer_Release(&out);
	if (ret)
		return NULL;
	Py_RETURN_NONE;
}

/* bytes as a memoryview of unsigned 64-bit integers. Takes the reference. */
static PyObject *fm_py_vector_view(PyObject *bytes)
{
	PyObject *view = PyMemoryView_FromObject(bytes), *ret;

	Py_DECREF(bytes);
	if (!view)
		return NULL;
	ret = PyObject_CallMethod(view, "cast", "s", "Q");
	Py_DECREF(view);
	return ret;
}

PyObject *fm_py_vector_gather_u64(PyObject *self, PyObject *const *args,
				  Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "gather_u64",
		.names = { "addresses", "physical" },
		.nr_required = 1,
		.nr_positional = 2,
	};
	FM_CLEANUP(fm_cleanup_py_ranges) struct fm_py_ranges ranges = { 0 };
	struct fm_vector vector = { .stride = 1, .item_size = 8 };
	PyObject *values[2], *bytes;
	struct fm_memory *memory;
	int physical, ret;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    (physical = fm_py_physical(values[1])) < 0 ||
	    fm_py_ranges_init(&ranges, values[0], false, "addresses"))
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	bytes = PyBytes_FromStringAndSize(NULL, ranges.total);
	if (!bytes)
		return NULL;
	vector.addresses = ranges.words;
	vector.nr = ranges.nr;
	vector.physical = physical;
	vector.out = (unsigned char *)PyBytes_AS_STRING(bytes);
	ret = fm_py_vector_run(self, memory, &vector, ranges.total, false) ||
	      fm_py_vector_raise(self, &vector);
	free(vector.faults);
	if (ret) {
		Py_DECREF(bytes);
		return NULL;
	}
	if (memory->core.is_little_endian != FM_HOST_IS_LITTLE_ENDIAN) {
		uint64_t *numbers = (uint64_t *)vector.out;

		for (size_t i = 0; i < ranges.nr; i++)
			numbers[i] = bswap_64(numbers[i]);
	}
	return fm_py_vector_view(bytes);
}

PyObject *fm_py_vector_prefetch(PyObject *self, PyObject *const *args,
				Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "prefetch",
		.names = { "ranges", "physical" },
		.nr_required = 1,
		.nr_positional = 2,
	};
	FM_CLEANUP(fm_cleanup_py_ranges) struct fm_py_ranges ranges = { 0 };
	struct fm_vector vector = { .stride = 2 };
	struct fm_memory *memory;
	PyObject *values[2];
	int physical;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    (physical = fm_py_physical(values[1])) < 0 ||
	    fm_py_ranges_init(&ranges, values[0], true, "ranges"))
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	vector.addresses = ranges.words;
	vector.nr = ranges.nr;
	vector.physical = physical;
	if (fm_py_vector_run(self, memory, &vector, ranges.total, true))
		return NULL;
	Py_RETURN_NONE;
}
