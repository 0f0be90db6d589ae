// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The extension module drgn_fastmem._core: its state, and open().
 * Does not hold globals; each interpreter has a state of its own.
 * Built for being imported with every start of drgn: it imports nothing but
 * the fault class.
 */

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "py.h"

/* A descriptor that the caller must close, or -1 with an exception. */
static int fm_py_open_path(struct fm_py_state *state, PyObject *path)
{
	struct fm_error err;
	PyObject *bytes;
	int fd;

	if (!PyUnicode_FSConverter(path, &bytes))
		return -1;
	/* A FIFO without a writer must not keep us waiting, nor a terminal
	 * become ours. */
	Py_BEGIN_ALLOW_THREADS fd =
		open(PyBytes_AS_STRING(bytes),
		     O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		fm_error_os(&err, errno, "open");
	Py_END_ALLOW_THREADS Py_DECREF(bytes);
	if (fd < 0)
		fm_py_raise(state, &err, path);
	return fd;
}

static int fm_py_mmap_mode(const char *name, enum fm_mmap_mode *ret)
{
	static const struct {
		const char *name;
		enum fm_mmap_mode mode;
	} modes[] = {
		{ "try", FM_MMAP_TRY },
		{ "never", FM_MMAP_NEVER },
		{ "always", FM_MMAP_ALWAYS },
	};

	for (size_t i = 0; i < FM_ARRAY_SIZE(modes); i++) {
		if (!strcmp(name, modes[i].name)) {
			*ret = modes[i].mode;
			return 0;
		}
	}
	PyErr_Format(PyExc_ValueError,
		     "mmap must be 'try', 'never' or 'always', not '%s'", name);
	return -1;
}

/* open(path or fd, mmap, kernel, translate, path to show): the Python layer's
 * doors, drgn_fastmem.open() and attach(), have the friendly signatures. */
static PyObject *fm_py_open(PyObject *module, PyObject *args)
{
	struct fm_py_state *state = PyModule_GetState(module);
	struct fm_memory_options options = { 0 };
	FM_AUTO_FD int opened = -1;
	PyObject *file, *path;
	struct fm_memory *memory;
	const char *mode;
	struct fm_error err;
	int kernel, translate, fd, ret;

	if (!PyArg_ParseTuple(args, "OsppO:open", &file, &mode, &kernel,
			      &translate, &path) ||
	    fm_py_mmap_mode(mode, &options.mmap))
		return NULL;
	options.kernel = kernel;
	options.no_translation = !translate;
	if (PyLong_Check(file)) {
		fd = PyObject_AsFileDescriptor(file);
		if (fd < 0)
			return NULL;
		options.shared_file = true;
		if (!state->shared_lock &&
		    fm_file_lock_create(&state->shared_lock, &err))
			return fm_py_raise(state, &err, NULL);
		options.lock = state->shared_lock;
	} else {
		fd = opened = fm_py_open_path(state, file);
		if (fd < 0)
			return NULL;
	}
	/* Reading 70,000 headers from a slow disk takes a while. */
	Py_BEGIN_ALLOW_THREADS ret =
		fm_memory_open(fd, &options, &memory, &err);
	Py_END_ALLOW_THREADS if (ret) return fm_py_raise(state, &err, path);
	return fm_py_memory_create(state, memory, path);
}

static PyMethodDef fm_py_functions[] = {
	{ "open", fm_py_open, METH_VARARGS,
	  "open($module, file, mmap, kernel, translate, path, /)\n--\n\n" },
	{ NULL, NULL, 0, NULL },
};

static int fm_py_import_fault(struct fm_py_state *state)
{
	PyObject *module = PyImport_ImportModule("drgn_fastmem._fault");

	if (!module)
		return -1;
	state->fault_error = PyObject_GetAttrString(module, "FaultError");
	state->read_status = PyObject_GetAttrString(module, "ReadStatus");
	Py_DECREF(module);
	return state->fault_error && state->read_status ? 0 : -1;
}

static int fm_py_exec(PyObject *module)
{
	struct fm_py_state *state = PyModule_GetState(module);

	if (fm_py_import_fault(state) || fm_py_types_init(module, state) ||
	    fm_py_memory_init(module, state) ||
	    fm_py_snapshot_init(module, state) ||
	    fm_py_attach_init(module, state))
		return -1;
	return 0;
}

static int fm_py_traverse(PyObject *module, visitproc visit, void *arg)
{
	struct fm_py_state *state = PyModule_GetState(module);

	Py_VISIT(state->fault_error);
	Py_VISIT(state->read_status);
	Py_VISIT(state->memory_type);
	Py_VISIT(state->keeper_type);
	Py_VISIT(state->snapshot_type);
	Py_VISIT(state->segment_type);
	Py_VISIT(state->stats_type);
	Py_VISIT(state->keepers);
	return 0;
}

static int fm_py_clear(PyObject *module)
{
	struct fm_py_state *state = PyModule_GetState(module);

	Py_CLEAR(state->fault_error);
	Py_CLEAR(state->read_status);
	Py_CLEAR(state->memory_type);
	Py_CLEAR(state->keeper_type);
	Py_CLEAR(state->snapshot_type);
	Py_CLEAR(state->segment_type);
	Py_CLEAR(state->stats_type);
	Py_CLEAR(state->keepers);
	return 0;
}

static void fm_py_free(void *module)
{
	struct fm_py_state *state = PyModule_GetState(module);

	fm_py_clear(module);
	fm_file_lock_put(FM_STEAL_PTR(state->shared_lock));
}

static PyModuleDef_Slot fm_py_slots[] = {
	{ Py_mod_exec, fm_py_exec },
	{ 0, NULL },
};

static PyModuleDef fm_py_module = {
	PyModuleDef_HEAD_INIT,
	.m_name = "drgn_fastmem._core",
	.m_size = sizeof(struct fm_py_state),
	.m_methods = fm_py_functions,
	.m_slots = fm_py_slots,
	.m_traverse = fm_py_traverse,
	.m_clear = fm_py_clear,
	.m_free = fm_py_free,
};

PyMODINIT_FUNC PyInit__core(void)
{
	return PyModuleDef_Init(&fm_py_module);
}
