// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Attaching a Memory to a drgn Program, and what keeps it alive there.
 * Does not choose the file (python/drgn_fastmem/_target.py) and does not know
 * drgn's ABI (drgn_api.c). Built for one attachment a Program; the keeper's
 * call is hot where drgn exports no C API.
 *
 * Program.add_memory_segment(0, 0, keeper) makes the Program hold the keeper
 * until it goes, and adds nothing (read in libdrgn of 0.0.22, 0.0.31, 0.3.0).
 * The keeper holds the memory, so whatever the user closes or clears, a
 * callback finds it. Nothing points back to the Program: no cycle.
 */

#include "drgn_api.h"
#include "overlay.h"
#include "py.h"

/* For T_PYSSIZET; CPython 3.12 has it in Python.h by another name. */
#include <structmember.h>

struct fm_py_keeper {
	PyObject_HEAD vectorcallfunc vectorcall;
	struct fm_py_state *state;
	/* attachment.memory is one reference. */
	struct fm_drgn_attachment attachment;
	/* The Memory that attach() returns for this Program. */
	PyObject *memory_object;
	/* Key in state->keepers, NULL until it is there. */
	PyObject *key;
	bool is_native;
};

/* drgn calls this with (address, count, offset, physical) where it can't be
 * given a C function. */
static PyObject *fm_py_keeper_vectorcall(PyObject *self, PyObject *const *args,
					 size_t nargsf, PyObject *kwnames)
{
	struct fm_py_keeper *keeper = (struct fm_py_keeper *)self;
	struct fm_error err;
	uint64_t address;
	Py_ssize_t count;
	PyObject *ret;

	if (PyVectorcall_NARGS(nargsf) != 4 || kwnames) {
		PyErr_SetString(PyExc_TypeError,
				"expected address, count, offset, physical");
		return NULL;
	}
	if (fm_py_address(args[0], &address) ||
	    fm_py_size(args[1], "count", &count))
		return NULL;
	if (count == 0)
		return PyBytes_FromStringAndSize(NULL, 0);
	if (count > 0 && (uint64_t)(count - 1) > UINT64_MAX - address) {
		PyErr_SetString(PyExc_ValueError, "the range wraps");
		return NULL;
	}
	ret = PyBytes_FromStringAndSize(NULL, count);
	if (!ret)
		return NULL;
	if (FM_UNLIKELY(fm_memory_read_range(
		    keeper->attachment.memory, PyBytes_AS_STRING(ret), address,
		    count, args[3] == Py_True, &err))) {
		Py_DECREF(ret);
		return fm_py_raise(keeper->state, &err, NULL);
	}
	return ret;
}

static void fm_py_keeper_dealloc(PyObject *self)
{
	struct fm_py_keeper *keeper = (struct fm_py_keeper *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject *exc_type, *exc_value, *exc_traceback;

	if (keeper->key && keeper->state->keepers) {
		PyErr_Fetch(&exc_type, &exc_value, &exc_traceback);
		if (PyDict_DelItem(keeper->state->keepers, keeper->key))
			PyErr_Clear();
		PyErr_Restore(exc_type, exc_value, exc_traceback);
	}
	Py_XDECREF(keeper->key);
	Py_XDECREF(keeper->memory_object);
	fm_memory_put(keeper->attachment.memory);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMemberDef fm_py_keeper_members[] = {
	{ "__vectorcalloffset__", T_PYSSIZET,
	  offsetof(struct fm_py_keeper, vectorcall), READONLY, NULL },
	{ NULL, 0, 0, 0, NULL },
};

static PyType_Slot fm_py_keeper_slots[] = {
	{ Py_tp_dealloc, fm_py_keeper_dealloc },
	{ Py_tp_call, PyVectorcall_Call },
	{ Py_tp_members, fm_py_keeper_members },
	{ Py_tp_doc, (void *)"What a drgn Program holds of this package." },
	{ 0, NULL },
};

static PyType_Spec fm_py_keeper_spec = {
	.name = "drgn_fastmem._core._Keeper",
	.basicsize = sizeof(struct fm_py_keeper),
	.flags = FM_PY_TYPE_FLAGS | Py_TPFLAGS_HAVE_VECTORCALL,
	.slots = fm_py_keeper_slots,
};

static struct fm_py_keeper *fm_py_keeper_create(struct fm_py_state *state,
						struct fm_py_memory *memory)
{
	struct fm_py_keeper *keeper;

	keeper = (struct fm_py_keeper *)state->keeper_type->tp_alloc(
		state->keeper_type, 0);
	if (!keeper)
		return NULL;
	keeper->vectorcall = fm_py_keeper_vectorcall;
	keeper->state = state;
	keeper->attachment.memory = fm_memory_get(memory->memory);
	Py_INCREF(memory);
	keeper->memory_object = (PyObject *)memory;
	return keeper;
}

static int fm_py_add_segment(PyObject *prog, uint64_t address, uint64_t size,
			     PyObject *keeper, bool physical)
{
	PyObject *ret = PyObject_CallMethod(prog, "add_memory_segment", "KKOO",
					    (unsigned long long)address,
					    (unsigned long long)size, keeper,
					    physical ? Py_True : Py_False);

	if (!ret)
		return -1;
	Py_DECREF(ret);
	return 0;
}

/* The Program holds keeper from here on, and attached() finds it. */
static int fm_py_keeper_hold(struct fm_py_keeper *keeper, PyObject *prog)
{
	PyObject *keepers = keeper->state->keepers;
	PyObject *address, *key;
	int ret;

	if (fm_py_add_segment(prog, 0, 0, (PyObject *)keeper, false))
		return -1;
	key = PyLong_FromVoidPtr(prog);
	if (!key)
		return -1;
	address = PyLong_FromVoidPtr(keeper);
	ret = address ? PyDict_SetItem(keepers, key, address) : -1;
	Py_XDECREF(address);
	if (ret)
		Py_DECREF(key);
	else
		keeper->key = key;
	return ret;
}

/* The keeper that prog holds, borrowed; NULL if none. */
static struct fm_py_keeper *fm_py_keeper_find(struct fm_py_state *state,
					      PyObject *prog)
{
	PyObject *key = PyLong_FromVoidPtr(prog), *address;

	if (!key)
		return NULL;
	address = PyDict_GetItemWithError(state->keepers, key);
	Py_DECREF(key);
	return address ? PyLong_AsVoidPtr(address) : NULL;
}

static int fm_py_attach_native(struct fm_py_keeper *keeper, PyObject *prog,
			       PyObject *library)
{
	struct fm_drgn_attachment *attachment = &keeper->attachment;
	struct drgn_program *program;
	PyObject *path = NULL;
	struct fm_error err;
	int ret;

	if (!PyUnicode_FSConverter(library, &path))
		return -1;
	ret = fm_drgn_api_load(&attachment->api, PyBytes_AS_STRING(path),
			       &err) ||
	      fm_drgn_api_program(&attachment->api, prog, sizeof(PyObject),
				  Py_TYPE(prog)->tp_basicsize, &program, &err);
	Py_DECREF(path);
	if (ret) {
		fm_py_raise(keeper->state, &err, NULL);
		return -1;
	}
	/* Held before the first range can be read through it. */
	keeper->is_native = true;
	if (fm_py_keeper_hold(keeper, prog))
		return -1;
	if (fm_drgn_api_attach(attachment, program, &err)) {
		fm_py_raise(keeper->state, &err, NULL);
		return -1;
	}
	return 0;
}

static int fm_py_attach_callable(struct fm_py_keeper *keeper, PyObject *prog,
				 bool faults)
{
	if (fm_py_keeper_hold(keeper, prog))
		return -1;
	for (int physical = 0; physical < 2; physical++) {
		struct fm_overlay overlay;
		uint64_t first, last;

		/* Where drgn loses what a callable raises, what is known to be
		 * a fault stays drgn's own. */
		fm_overlay_init(&overlay, keeper->attachment.memory, physical,
				!faults);
		while (fm_overlay_next(&overlay, &first, &last)) {
			uint64_t size = last - first + 1;

			/* As in drgn_api.c: 2^64 is no size. */
			if (size == 0) {
				if (fm_py_add_segment(prog, last, 1,
						      (PyObject *)keeper,
						      physical))
					return -1;
				size = UINT64_MAX;
			}
			if (fm_py_add_segment(prog, first, size,
					      (PyObject *)keeper, physical))
				return -1;
		}
	}
	return 0;
}

/* attach(prog, memory, library or None, whether faults of callables reach the
 * caller): lay memory over prog's own. */
static PyObject *fm_py_attach(PyObject *module, PyObject *args)
{
	struct fm_py_state *state = PyModule_GetState(module);
	PyObject *prog, *memory_object, *library;
	struct fm_py_memory *memory;
	struct fm_py_keeper *keeper;
	int faults, ret;

	if (!PyArg_ParseTuple(args, "OOOp:attach", &prog, &memory_object,
			      &library, &faults))
		return NULL;
	memory = fm_py_memory_check(state, memory_object);
	if (!memory)
		return NULL;
	keeper = fm_py_keeper_create(state, memory);
	if (!keeper)
		return NULL;
	ret = library == Py_None ? fm_py_attach_callable(keeper, prog, faults) :
				   fm_py_attach_native(keeper, prog, library);
	Py_DECREF(keeper);
	if (ret)
		return NULL;
	Py_RETURN_NONE;
}

/* attached(prog): (Memory, "native" or "callable"), or None. */
static PyObject *fm_py_attached(PyObject *module, PyObject *prog)
{
	struct fm_py_state *state = PyModule_GetState(module);
	struct fm_py_keeper *keeper = fm_py_keeper_find(state, prog);
	struct fm_py_memory *memory;

	if (!keeper) {
		if (PyErr_Occurred())
			return NULL;
		Py_RETURN_NONE;
	}
	memory = (struct fm_py_memory *)keeper->memory_object;
	/* The user closed the handle, but the Program still reads through
	 * what it was a handle of: make another. */
	if (!memory->memory) {
		PyObject *again = fm_py_memory_create(
			state, fm_memory_get(keeper->attachment.memory),
			memory->path);

		if (!again)
			return NULL;
		Py_SETREF(keeper->memory_object, again);
	}
	return Py_BuildValue("Os", keeper->memory_object,
			     keeper->is_native ? "native" : "callable");
}

static PyMethodDef fm_py_attach_functions[] = {
	{ "attach", fm_py_attach, METH_VARARGS,
	  "attach($module, prog, memory, library, faults, /)\n--\n\n" },
	{ "attached", fm_py_attached, METH_O,
	  "attached($module, prog, /)\n--\n\n" },
	{ NULL, NULL, 0, NULL },
};

int fm_py_attach_init(PyObject *module, struct fm_py_state *state)
{
	state->keeper_type = fm_py_type_create(module, &fm_py_keeper_spec);
	if (!state->keeper_type)
		return -1;
	state->keepers = PyDict_New();
	if (!state->keepers)
		return -1;
	return PyModule_AddFunctions(module, fm_py_attach_functions);
}
