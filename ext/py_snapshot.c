// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * What Memory.snapshot() returns: a context manager.
 * Does not keep pages (page_cache.c). Built for one with block, entered once;
 * whatever it has begun ends with it.
 */

#include "py.h"

struct fm_py_snapshot {
	PyObject_HEAD PyObject *memory_object;
	/* One reference while nr_entered is not 0: the Memory may be closed
	 * inside the block. */
	struct fm_memory *memory;
	Py_ssize_t nr_entered;
};

PyObject *fm_py_snapshot_create(struct fm_py_state *state,
				PyObject *memory_object)
{
	struct fm_py_snapshot *snapshot;

	snapshot = (struct fm_py_snapshot *)state->snapshot_type->tp_alloc(
		state->snapshot_type, 0);
	if (!snapshot)
		return NULL;
	Py_INCREF(memory_object);
	snapshot->memory_object = memory_object;
	return (PyObject *)snapshot;
}

static PyObject *fm_py_snapshot_enter(PyObject *self, PyObject *unused)
{
	struct fm_py_snapshot *snapshot = (struct fm_py_snapshot *)self;
	struct fm_py_memory *object =
		(struct fm_py_memory *)snapshot->memory_object;
	struct fm_memory *memory;
	struct fm_error err;

	(void)unused;
	/* Entered again after the Memory was closed, it goes on. */
	memory = snapshot->memory;
	if (!memory)
		memory = fm_py_memory_open(snapshot->memory_object);
	if (!memory)
		return NULL;
	if (fm_memory_begin_snapshot(memory, &err))
		return fm_py_raise(object->state, &err, NULL);
	if (snapshot->nr_entered++ == 0)
		snapshot->memory = fm_memory_get(memory);
	Py_INCREF(object);
	return (PyObject *)object;
}

static void fm_py_snapshot_end(struct fm_py_snapshot *snapshot)
{
	fm_memory_end_snapshot(snapshot->memory);
	if (--snapshot->nr_entered == 0)
		fm_memory_put(FM_STEAL_PTR(snapshot->memory));
}

static PyObject *fm_py_snapshot_exit(PyObject *self, PyObject *args)
{
	struct fm_py_snapshot *snapshot = (struct fm_py_snapshot *)self;

	(void)args;
	if (snapshot->nr_entered == 0) {
		PyErr_SetString(PyExc_ValueError,
				"the snapshot was not entered");
		return NULL;
	}
	fm_py_snapshot_end(snapshot);
	Py_RETURN_NONE;
}

static void fm_py_snapshot_dealloc(PyObject *self)
{
	struct fm_py_snapshot *snapshot = (struct fm_py_snapshot *)self;
	PyTypeObject *type = Py_TYPE(self);

	/* A generator that was left inside the block, for one. */
	while (snapshot->nr_entered > 0)
		fm_py_snapshot_end(snapshot);
	Py_XDECREF(snapshot->memory_object);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyMethodDef fm_py_snapshot_methods[] = {
	{ "__enter__", fm_py_snapshot_enter, METH_NOARGS,
	  FM_PY_DOC("__enter__", "$self", "") },
	{ "__exit__", fm_py_snapshot_exit, METH_VARARGS,
	  FM_PY_DOC("__exit__", "$self, exc_type, exc_value, traceback, /",
		    "") },
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot fm_py_snapshot_slots[] = {
	{ Py_tp_dealloc, fm_py_snapshot_dealloc },
	{ Py_tp_methods, fm_py_snapshot_methods },
	{ Py_tp_doc, (void *)"Repeatable reads inside a with block; "
			     "Memory.snapshot() makes one." },
	{ 0, NULL },
};

static PyType_Spec fm_py_snapshot_spec = {
	.name = "drgn_fastmem.Snapshot",
	.basicsize = sizeof(struct fm_py_snapshot),
	.flags = FM_PY_TYPE_FLAGS,
	.slots = fm_py_snapshot_slots,
};

int fm_py_snapshot_init(PyObject *module, struct fm_py_state *state)
{
	state->snapshot_type = fm_py_type_create(module, &fm_py_snapshot_spec);
	return state->snapshot_type ?
		       PyModule_AddType(module, state->snapshot_type) :
		       -1;
}
