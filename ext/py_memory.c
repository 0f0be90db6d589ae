// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The Memory type: a handle of the plain C library's memory.
 * Does not open files (module.c) or know drgn (py_attach.c). Built for
 * read_u64 in a loop; python/drgn_fastmem/_core.pyi is the text of the API.
 */

#include <byteswap.h>
#include <math.h>
#include <string.h>

#include "py.h"

/* So much is read between two looks at the signals that Python has to handle.
 */
#define FM_PY_MEMORY_CHUNK (16 << 20)

static PyObject *fm_py_memory_closed(void)
{
	PyErr_SetString(PyExc_ValueError, "the memory is closed");
	return NULL;
}

struct fm_memory *fm_py_memory_open(PyObject *self)
{
	struct fm_memory *memory = ((struct fm_py_memory *)self)->memory;

	if (FM_UNLIKELY(!memory))
		fm_py_memory_closed();
	return memory;
}

static PyObject *fm_py_memory_raise(PyObject *self, const struct fm_error *err)
{
	return fm_py_raise(((struct fm_py_memory *)self)->state, err, NULL);
}

/*
 * Read without the GIL, in chunks between which signals are handled. Other
 * threads run meanwhile and may close self, so the memory is held.
 */
static int fm_py_memory_read_long(PyObject *self, struct fm_memory *memory,
				  char *buf, uint64_t address, size_t count,
				  bool physical)
{
	struct fm_error err;
	int ret = 0;

	fm_memory_get(memory);
	while (count > 0 && !ret) {
		size_t n = fm_min_u64(count, FM_PY_MEMORY_CHUNK);

		Py_BEGIN_ALLOW_THREADS ret =
			fm_memory_read(memory, buf, address, n, physical, &err);
		Py_END_ALLOW_THREADS if (ret) fm_py_memory_raise(self, &err);
		else ret = PyErr_CheckSignals();
		buf += n;
		address += n;
		count -= n;
	}
	fm_memory_put(memory);
	return ret;
}

static int fm_py_memory_read_any(PyObject *self, struct fm_memory *memory,
				 char *buf, uint64_t address, size_t count,
				 bool physical)
{
	struct fm_error err;

	if (count >= FM_MEMORY_BULK_SIZE)
		return fm_py_memory_read_long(self, memory, buf, address, count,
					      physical);
	if (FM_UNLIKELY(fm_memory_read(memory, buf, address, count, physical,
				       &err))) {
		fm_py_memory_raise(self, &err);
		return -1;
	}
	return 0;
}

static PyObject *fm_py_memory_read(PyObject *self, PyObject *const *args,
				   Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "read",
		.names = { "address", "size", "physical" },
		.nr_required = 2,
		.nr_positional = 3,
	};
	struct fm_memory *memory;
	PyObject *values[3], *ret;
	uint64_t address;
	Py_ssize_t size;
	int physical;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    fm_py_address(values[0], &address) ||
	    fm_py_size(values[1], "size", &size) ||
	    (physical = fm_py_physical(values[2])) < 0)
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	ret = PyBytes_FromStringAndSize(NULL, size);
	if (!ret)
		return NULL;
	if (fm_py_memory_read_any(self, memory, PyBytes_AS_STRING(ret), address,
				  size, physical)) {
		Py_DECREF(ret);
		return NULL;
	}
	return ret;
}

static PyObject *fm_py_memory_read_into(PyObject *self, PyObject *const *args,
					Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "read_into",
		.names = { "address", "buffer", "physical" },
		.nr_required = 2,
		.nr_positional = 3,
	};
	struct fm_memory *memory;
	PyObject *values[3];
	uint64_t address;
	Py_buffer view;
	int physical, ret;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    fm_py_address(values[0], &address) ||
	    (physical = fm_py_physical(values[2])) < 0 ||
	    PyObject_GetBuffer(values[1], &view, PyBUF_WRITABLE))
		return NULL;
	/* Only now: getting the buffer can run Python code that closes self. */
	memory = fm_py_memory_open(self);
	ret = memory ? fm_py_memory_read_any(self, memory, view.buf, address,
					     view.len, physical) :
		       -1;
	PyBuffer_Release(&view);
	if (ret)
		return NULL;
	Py_RETURN_NONE;
}

/* Read size bytes, 1 to 8, as a number in the target's byte order. */
static PyObject *fm_py_memory_read_number(PyObject *self,
					  const struct fm_py_signature *sig,
					  PyObject *const *args,
					  Py_ssize_t nargs, PyObject *kwnames,
					  size_t size)
{
	struct fm_memory *memory;
	struct fm_error err;
	PyObject *values[2];
	uint64_t address;
	int physical;
	bool swap;
	union {
		uint8_t u8;
		uint16_t u16;
		uint32_t u32;
		uint64_t u64;
	} value;

	if (FM_LIKELY(nargs == 1 && !kwnames)) {
		values[0] = args[0];
		values[1] = NULL;
	} else if (fm_py_parse(sig, args, nargs, kwnames, values)) {
		return NULL;
	}
	if (fm_py_address(values[0], &address) ||
	    (physical = fm_py_physical(values[1])) < 0)
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	if (size == 0)
		size = memory->core.is_64_bit ? 8 : 4;
	if (FM_UNLIKELY(fm_memory_read(memory, &value, address, size, physical,
				       &err)))
		return fm_py_memory_raise(self, &err);
	swap = memory->core.is_little_endian != FM_HOST_IS_LITTLE_ENDIAN;
	switch (size) {
	case 1:
		return PyLong_FromLong(value.u8);
	case 2:
		return PyLong_FromLong(swap ? bswap_16(value.u16) : value.u16);
	case 4:
		return PyLong_FromUnsignedLong(swap ? bswap_32(value.u32) :
						      value.u32);
	default:
		return PyLong_FromUnsignedLongLong(swap ? bswap_64(value.u64) :
							  value.u64);
	}
}

/* size 0: a word of the target. */
#define FM_PY_MEMORY_READ_NUMBER(name, size)                                   \
	static PyObject *fm_py_memory_##name(                                  \
		PyObject *self, PyObject *const *args, Py_ssize_t nargs,       \
		PyObject *kwnames)                                             \
	{                                                                      \
		static const struct fm_py_signature signature = {              \
			.function = #name,                                     \
			.names = { "address", "physical" },                    \
			.nr_required = 1,                                      \
			.nr_positional = 2,                                    \
		};                                                             \
		return fm_py_memory_read_number(self, &signature, args, nargs, \
						kwnames, size);                \
	}
FM_PY_MEMORY_READ_NUMBER(read_u8, 1)
FM_PY_MEMORY_READ_NUMBER(read_u16, 2)
FM_PY_MEMORY_READ_NUMBER(read_u32, 4)
FM_PY_MEMORY_READ_NUMBER(read_u64, 8)
FM_PY_MEMORY_READ_NUMBER(read_word, 0)
#undef FM_PY_MEMORY_READ_NUMBER

static PyObject *fm_py_memory_read_c_string(PyObject *self,
					    PyObject *const *args,
					    Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "read_c_string",
		.names = { "address", "physical", "max_size" },
		.nr_required = 1,
		.nr_positional = 2,
	};
	Py_ssize_t max_size = PY_SSIZE_T_MAX;
	struct fm_memory *memory;
	PyObject *values[3], *ret;
	struct fm_error err;
	uint64_t address;
	size_t size;
	int physical;
	char *string;

	if (fm_py_parse(&signature, args, nargs, kwnames, values) ||
	    fm_py_address(values[0], &address) ||
	    (physical = fm_py_physical(values[1])) < 0)
		return NULL;
	if (values[2] && values[2] != Py_None &&
	    fm_py_size(values[2], "max_size", &max_size))
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	if (fm_memory_read_c_string(memory, address, max_size, physical,
				    &string, &size, &err))
		return fm_py_memory_raise(self, &err);
	ret = PyBytes_FromStringAndSize(string, size);
	free(string);
	return ret;
}

static PyObject *fm_py_memory_translate(PyObject *self, PyObject *const *args,
					Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct fm_py_signature signature = {
		.function = "translate",
		.names = { "address" },
		.nr_required = 1,
		.nr_positional = 1,
	};
	uint64_t address, physical;
	struct fm_memory *memory;
	struct fm_error err;
	PyObject *value;

	if (fm_py_parse(&signature, args, nargs, kwnames, &value) ||
	    fm_py_address(value, &address))
		return NULL;
	memory = fm_py_memory_open(self);
	if (!memory)
		return NULL;
	if (fm_memory_translate(memory, address, &physical, &err))
		return fm_py_memory_raise(self, &err);
	return PyLong_FromUnsignedLongLong(physical);
}

static PyObject *fm_py_memory_snapshot(PyObject *self, PyObject *unused)
{
	(void)unused;
	if (!fm_py_memory_open(self))
		return NULL;
	return fm_py_snapshot_create(((struct fm_py_memory *)self)->state,
				     self);
}

static PyObject *fm_py_memory_invalidate(PyObject *self, PyObject *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);

	(void)unused;
	if (!memory)
		return NULL;
	fm_memory_invalidate(memory);
	Py_RETURN_NONE;
}

static PyObject *fm_py_memory_reset_stats(PyObject *self, PyObject *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);

	(void)unused;
	if (!memory)
		return NULL;
	fm_memory_reset_stats(memory);
	Py_RETURN_NONE;
}

static PyObject *fm_py_memory_close(PyObject *self, PyObject *unused)
{
	struct fm_py_memory *object = (struct fm_py_memory *)self;

	(void)unused;
	fm_memory_put(FM_STEAL_PTR(object->memory));
	Py_RETURN_NONE;
}

static PyObject *fm_py_memory_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	if (!fm_py_memory_open(self))
		return NULL;
	Py_INCREF(self);
	return self;
}

static PyObject *fm_py_memory_exit(PyObject *self, PyObject *unused)
{
	return fm_py_memory_close(self, unused);
}

static PyObject *fm_py_memory_get_segments(PyObject *self, void *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);

	(void)unused;
	if (!memory)
		return NULL;
	return fm_py_segments(((struct fm_py_memory *)self)->state, memory);
}

static PyObject *fm_py_memory_get_stats(PyObject *self, void *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);

	(void)unused;
	if (!memory)
		return NULL;
	return fm_py_stats(((struct fm_py_memory *)self)->state, memory);
}

/* In seconds. */
static PyObject *fm_py_memory_get_max_age(PyObject *self, void *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);
	uint64_t max_age;

	(void)unused;
	if (!memory)
		return NULL;
	max_age = fm_memory_max_age(memory);
	return PyFloat_FromDouble(max_age == FM_PAGE_CACHE_ANY_AGE ?
					  Py_HUGE_VAL :
					  (double)max_age / 1e9);
}

static int fm_py_memory_set_max_age(PyObject *self, PyObject *value,
				    void *unused)
{
	struct fm_memory *memory;
	double seconds, max_age;

	(void)unused;
	if (!value) {
		PyErr_SetString(PyExc_AttributeError,
				"max_age can't be deleted");
		return -1;
	}
	seconds = PyFloat_AsDouble(value);
	if (seconds == -1.0 && PyErr_Occurred())
		return -1;
	if (!(seconds >= 0)) {
		PyErr_Format(PyExc_ValueError,
			     "max_age must be 0 or more seconds, not %R",
			     value);
		return -1;
	}
	memory = fm_py_memory_open(self);
	if (!memory)
		return -1;
	/* What is more than 0 stays more than 0. */
	max_age = ceil(seconds * 1e9);
	/* 292 years. */
	fm_memory_set_max_age(memory, max_age < 0x1p63 ? (uint64_t)max_age :
							 FM_PAGE_CACHE_ANY_AGE);
	return 0;
}

static PyObject *fm_py_memory_get_path(PyObject *self, void *unused)
{
	PyObject *path = ((struct fm_py_memory *)self)->path;

	(void)unused;
	Py_INCREF(path);
	return path;
}

static PyObject *fm_py_memory_get_closed(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(!((struct fm_py_memory *)self)->memory);
}

/* A getter for a flag that was decided when the file was opened. */
#define FM_PY_MEMORY_FLAG(name, expression)                                    \
	static PyObject *fm_py_memory_get_##name(PyObject *self, void *unused) \
	{                                                                      \
		struct fm_memory *memory = fm_py_memory_open(self);            \
                                                                               \
		(void)unused;                                                  \
		return memory ? PyBool_FromLong(expression) : NULL;            \
	}
FM_PY_MEMORY_FLAG(is_live, memory->core.is_kcore)
FM_PY_MEMORY_FLAG(is_64_bit, memory->core.is_64_bit)
FM_PY_MEMORY_FLAG(is_little_endian, memory->core.is_little_endian)
#undef FM_PY_MEMORY_FLAG

static PyObject *fm_py_memory_get_translation(PyObject *self, void *unused)
{
	struct fm_memory *memory = fm_py_memory_open(self);

	(void)unused;
	if (!memory)
		return NULL;
	if (memory->translates)
		return PyUnicode_FromString(memory->mmu.name);
	return PyUnicode_FromFormat("none: %s", memory->why_not_translated);
}

static PyObject *fm_py_memory_repr(PyObject *self)
{
	struct fm_py_memory *object = (struct fm_py_memory *)self;

	if (!object->memory)
		return PyUnicode_FromFormat(
			"<drgn_fastmem.Memory of %R, closed>", object->path);
	return PyUnicode_FromFormat(
		"<drgn_fastmem.Memory of %R, %zu segments%s>", object->path,
		object->memory->core.nr_segments,
		object->memory->any_mapped ? ", mapped" : "");
}

static void fm_py_memory_dealloc(PyObject *self)
{
	struct fm_py_memory *object = (struct fm_py_memory *)self;
	PyTypeObject *type = Py_TYPE(self);

	fm_memory_put(object->memory);
	Py_XDECREF(object->path);
	type->tp_free(self);
	Py_DECREF(type);
}

#define FM_PY_FAST(prefix, name, parameters, text)                             \
	{                                                                      \
#name, (PyCFunction)(void (*)(void))prefix##name,              \
			METH_FASTCALL | METH_KEYWORDS,                         \
			FM_PY_DOC(#name, parameters, text)                     \
	}

static PyMethodDef fm_py_memory_methods[] = {
	FM_PY_FAST(fm_py_memory_, read, "$self, address, size, physical=False",
		   "Read size bytes."),
	FM_PY_FAST(fm_py_memory_, read_into,
		   "$self, address, buffer, physical=False", "Fill buffer."),
	FM_PY_FAST(fm_py_memory_, read_u8, "$self, address, physical=False",
		   "Read an unsigned integer of 1 byte."),
	FM_PY_FAST(fm_py_memory_, read_u16, "$self, address, physical=False",
		   "Read an unsigned integer of 2 bytes."),
	FM_PY_FAST(fm_py_memory_, read_u32, "$self, address, physical=False",
		   "Read an unsigned integer of 4 bytes."),
	FM_PY_FAST(fm_py_memory_, read_u64, "$self, address, physical=False",
		   "Read an unsigned integer of 8 bytes."),
	FM_PY_FAST(fm_py_memory_, read_word, "$self, address, physical=False",
		   "Read an unsigned integer of the target's word size."),
	FM_PY_FAST(fm_py_memory_, read_c_string,
		   "$self, address, physical=False, *, max_size=None",
		   "Read the bytes before the first zero byte."),
	FM_PY_FAST(fm_py_vector_, readv,
		   "$self, ranges, physical=False, *, on_fault='raise'",
		   "Read many ranges."),
	FM_PY_FAST(fm_py_vector_, readv_into,
		   "$self, ranges, out, physical=False, *, status=None",
		   "Read many ranges into one buffer, back to back."),
	FM_PY_FAST(fm_py_vector_, gather_u64,
		   "$self, addresses, physical=False",
		   "Read an unsigned integer of 8 bytes at each address."),
	FM_PY_FAST(fm_py_vector_, prefetch, "$self, ranges, physical=False",
		   "Read ranges into the page cache."),
	FM_PY_FAST(fm_py_memory_, translate, "$self, address",
		   "The physical address that a read of address reads."),
	{ "snapshot", fm_py_memory_snapshot, METH_NOARGS,
	  FM_PY_DOC("snapshot", "$self",
		    "A context manager: inside the block reads are "
		    "repeatable.") },
	{ "invalidate", fm_py_memory_invalidate, METH_NOARGS,
	  FM_PY_DOC("invalidate", "$self",
		    "Forget all bytes that were read.") },
	{ "reset_stats", fm_py_memory_reset_stats, METH_NOARGS,
	  FM_PY_DOC("reset_stats", "$self", "Set the counters to zero.") },
	{ "close", fm_py_memory_close, METH_NOARGS,
	  FM_PY_DOC("close", "$self", "Close this handle.") },
	{ "__enter__", fm_py_memory_enter, METH_NOARGS,
	  FM_PY_DOC("__enter__", "$self", "") },
	{ "__exit__", fm_py_memory_exit, METH_VARARGS,
	  FM_PY_DOC("__exit__", "$self, exc_type, exc_value, traceback, /",
		    "") },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef fm_py_memory_getset[] = {
	{ "segments", fm_py_memory_get_segments, NULL, NULL, NULL },
	{ "stats", fm_py_memory_get_stats, NULL, NULL, NULL },
	{ "max_age", fm_py_memory_get_max_age, fm_py_memory_set_max_age, NULL,
	  NULL },
	{ "path", fm_py_memory_get_path, NULL, NULL, NULL },
	{ "closed", fm_py_memory_get_closed, NULL, NULL, NULL },
	{ "is_live", fm_py_memory_get_is_live, NULL, NULL, NULL },
	{ "is_64_bit", fm_py_memory_get_is_64_bit, NULL, NULL, NULL },
	{ "translation", fm_py_memory_get_translation, NULL, NULL, NULL },
	{ "is_little_endian", fm_py_memory_get_is_little_endian, NULL, NULL,
	  NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot fm_py_memory_slots[] = {
	{ Py_tp_dealloc, fm_py_memory_dealloc },
	{ Py_tp_repr, fm_py_memory_repr },
	{ Py_tp_methods, fm_py_memory_methods },
	{ Py_tp_getset, fm_py_memory_getset },
	{ Py_tp_doc, (void *)"The memory of a core file or of the running "
			     "kernel; drgn_fastmem.open() makes one." },
	{ 0, NULL },
};

static PyType_Spec fm_py_memory_spec = {
	.name = "drgn_fastmem.Memory",
	.basicsize = sizeof(struct fm_py_memory),
	.flags = FM_PY_TYPE_FLAGS,
	.slots = fm_py_memory_slots,
};

int fm_py_memory_init(PyObject *module, struct fm_py_state *state)
{
	state->memory_type = fm_py_type_create(module, &fm_py_memory_spec);
	return state->memory_type ?
		       PyModule_AddType(module, state->memory_type) :
		       -1;
}

PyObject *fm_py_memory_create(struct fm_py_state *state,
			      struct fm_memory *memory, PyObject *path)
{
	struct fm_py_memory *object;

	object = (struct fm_py_memory *)state->memory_type->tp_alloc(
		state->memory_type, 0);
	if (!object) {
		fm_memory_put(memory);
		return NULL;
	}
	object->state = state;
	object->memory = memory;
	Py_INCREF(path);
	object->path = path;
	return (PyObject *)object;
}

struct fm_py_memory *fm_py_memory_check(struct fm_py_state *state,
					PyObject *object)
{
	if (!Py_IS_TYPE(object, state->memory_type)) {
		PyErr_Format(PyExc_TypeError, "expected a Memory, not %.200s",
			     Py_TYPE(object)->tp_name);
		return NULL;
	}
	if (!fm_py_memory_open(object))
		return NULL;
	return (struct fm_py_memory *)object;
}
