// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Arguments in, exceptions out, types made.
 * Does not read memory. Built for method calls of 50 ns, so arguments are
 * taken from the vector that CPython passes, without a tuple or a format.
 */

#include <string.h>

#include "py.h"

PyTypeObject *fm_py_type_create(PyObject *module, PyType_Spec *spec)
{
	PyTypeObject *type =
		(PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);

#ifndef Py_TPFLAGS_DISALLOW_INSTANTIATION
	/* CPython 3.9 inherits object's otherwise. */
	if (type)
		type->tp_new = NULL;
#endif
	return type;
}

static PyObject *fm_py_raise_os(const struct fm_error *err, PyObject *path)
{
	PyObject *exception;

	/* OSError picks the subclass (FileNotFoundError...) by the number. */
	exception = PyObject_CallFunction(PyExc_OSError, "isO", err->os_errno,
					  strerror(err->os_errno),
					  path ? path : Py_None);
	if (exception) {
		PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
		Py_DECREF(exception);
	}
	return NULL;
}

PyObject *fm_py_fault(struct fm_py_state *state, const struct fm_error *err)
{
	PyObject *exception, *reason;
	int ret = -1;

	exception =
		PyObject_CallFunction(state->fault_error, "sK", err->message,
				      (unsigned long long)err->address);
	if (!exception)
		return NULL;
	reason = PyObject_CallFunction(state->read_status, "i", err->reason);
	if (reason)
		ret = PyObject_SetAttrString(exception, "reason", reason);
	Py_XDECREF(reason);
	if (ret)
		Py_CLEAR(exception);
	return exception;
}

PyObject *fm_py_raise(struct fm_py_state *state, const struct fm_error *err,
		      PyObject *path)
{
	PyObject *exception;

	switch (err->code) {
	case FM_ERROR_FAULT:
		exception = fm_py_fault(state, err);
		if (exception) {
			PyErr_SetObject(state->fault_error, exception);
			Py_DECREF(exception);
		}
		return NULL;
	case FM_ERROR_OS:
		return fm_py_raise_os(err, path);
	case FM_ERROR_NO_MEMORY:
		return PyErr_NoMemory();
	case FM_ERROR_FORMAT:
	case FM_ERROR_ARGUMENT:
	case FM_ERROR_NONE:
		break;
	}
	if (path && path != Py_None)
		PyErr_Format(PyExc_ValueError, "%S: %s", path, err->message);
	else
		PyErr_SetString(PyExc_ValueError, err->message);
	return NULL;
}

int fm_py_physical(PyObject *value)
{
	if (!value || value == Py_False)
		return 0;
	return value == Py_True ? 1 : PyObject_IsTrue(value);
}

int fm_py_address(PyObject *object, uint64_t *ret)
{
	PyObject *index;

	if (PyLong_CheckExact(object)) {
		*ret = PyLong_AsUnsignedLongLong(object);
	} else {
		index = PyNumber_Index(object);
		if (!index)
			return -1;
		*ret = PyLong_AsUnsignedLongLong(index);
		Py_DECREF(index);
	}
	return *ret == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

int fm_py_size(PyObject *object, const char *name, Py_ssize_t *ret)
{
	*ret = PyNumber_AsSsize_t(object, PyExc_OverflowError);
	if (*ret == -1 && PyErr_Occurred())
		return -1;
	if (*ret < 0) {
		PyErr_Format(PyExc_ValueError, "negative %s", name);
		return -1;
	}
	return 0;
}

static Py_ssize_t fm_py_find_name(const struct fm_py_signature *signature,
				  PyObject *name)
{
	for (Py_ssize_t i = 0; signature->names[i]; i++) {
		if (PyUnicode_CompareWithASCIIString(name,
						     signature->names[i]) == 0)
			return i;
	}
	return -1;
}

static int fm_py_parse_keywords(const struct fm_py_signature *signature,
				PyObject *const *keyword_values,
				PyObject *kwnames, PyObject **values)
{
	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); i++) {
		PyObject *name = PyTuple_GET_ITEM(kwnames, i);
		Py_ssize_t at = fm_py_find_name(signature, name);

		if (at < 0) {
			PyErr_Format(PyExc_TypeError,
				     "%s() got an unexpected keyword argument "
				     "'%U'",
				     signature->function, name);
			return -1;
		}
		if (values[at]) {
			PyErr_Format(PyExc_TypeError,
				     "%s() got multiple values for argument "
				     "'%U'",
				     signature->function, name);
			return -1;
		}
		values[at] = keyword_values[i];
	}
	return 0;
}

int fm_py_parse(const struct fm_py_signature *signature, PyObject *const *args,
		Py_ssize_t nargs, PyObject *kwnames, PyObject **values)
{
	if (nargs > signature->nr_positional) {
		PyErr_Format(PyExc_TypeError,
			     "%s() takes at most %zd positional arguments (%zd "
			     "given)",
			     signature->function, signature->nr_positional,
			     nargs);
		return -1;
	}
	for (Py_ssize_t i = 0; signature->names[i]; i++)
		values[i] = i < nargs ? args[i] : NULL;
	if (kwnames &&
	    fm_py_parse_keywords(signature, args + nargs, kwnames, values))
		return -1;
	for (Py_ssize_t i = 0; i < signature->nr_required; i++) {
		if (!values[i]) {
			PyErr_Format(PyExc_TypeError,
				     "%s() missing required argument '%s'",
				     signature->function, signature->names[i]);
			return -1;
		}
	}
	return 0;
}
