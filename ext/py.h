/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * What the files of the Python layer share: the module's state, the types, the
 * conversions between C and Python.
 *
 * Everything here is called with the GIL held. Functions that return a pointer
 * return a new reference or NULL with an exception set; functions that return
 * int return 0, or -1 with an exception set.
 */

#ifndef FM_PY_H
#define FM_PY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "memory.h"

struct fm_py_state {
	/* The class that faults are raised as: drgn's own if it is there. */
	PyObject *fault_error;
	/* What the number of a fault's reason is called with: ReadStatus. */
	PyObject *read_status;
	PyTypeObject *memory_type;
	PyTypeObject *keeper_type;
	PyTypeObject *snapshot_type;
	PyTypeObject *segment_type;
	PyTypeObject *stats_type;
	/* id(Program) -> address of its keeper, which the Program holds. */
	PyObject *keepers;
	/* For descriptors of /proc/kcore that others read through as well and
	 * that can't be opened anew; created when first needed. */
	struct fm_file_lock *shared_lock;
};

/* The Memory type's objects. */
struct fm_py_memory {
	PyObject_HEAD struct fm_py_state *state;
	/* One reference; NULL when closed. */
	struct fm_memory *memory;
	/* str, bytes or None. */
	PyObject *path;
};

#define FM_HOST_IS_LITTLE_ENDIAN (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* Of types whose objects only this module makes. */
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
#define FM_PY_TYPE_FLAGS                                                       \
	(Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION)
#else
#define FM_PY_TYPE_FLAGS Py_TPFLAGS_DEFAULT
#endif

/* inspect.signature() and help() take the parameters from the text. */
#define FM_PY_DOC(name, parameters, text) name "(" parameters ")\n--\n\n" text

/* py_util.c */

/* A type with FM_PY_TYPE_FLAGS. */
PyTypeObject *fm_py_type_create(PyObject *module, PyType_Spec *spec);

/* Raise err. path is the file it is about, or NULL. Returns NULL. */
PyObject *fm_py_raise(struct fm_py_state *state, const struct fm_error *err,
		      PyObject *path);

/* The exception that raising a fault raises. */
PyObject *fm_py_fault(struct fm_py_state *state, const struct fm_error *err);

/* The value of an optional "physical" argument: 0 or 1; NULL is 0. */
int fm_py_physical(PyObject *value);
/* An address as drgn takes it: any index from 0 to 2^64-1. */
int fm_py_address(PyObject *object, uint64_t *ret);
/* A size from 0; name is for the message. */
int fm_py_size(PyObject *object, const char *name, Py_ssize_t *ret);

/* The parameters of a METH_FASTCALL | METH_KEYWORDS method. */
struct fm_py_signature {
	const char *function;
	/* NULL at the end. */
	const char *names[5];
	/* How many must be given, how many may be given by position. */
	Py_ssize_t nr_required, nr_positional;
};

/* Borrowed references to the arguments; those not given are NULL. */
int fm_py_parse(const struct fm_py_signature *signature, PyObject *const *args,
		Py_ssize_t nargs, PyObject *kwnames, PyObject **values);

/* py_types.c: Segment and Stats */

int fm_py_types_init(PyObject *module, struct fm_py_state *state);
PyObject *fm_py_segments(struct fm_py_state *state,
			 const struct fm_memory *memory);
PyObject *fm_py_stats(struct fm_py_state *state,
		      const struct fm_memory *memory);

/* py_memory.c: Memory */

int fm_py_memory_init(PyObject *module, struct fm_py_state *state);
/* Takes the reference to memory, also if it fails. */
PyObject *fm_py_memory_create(struct fm_py_state *state,
			      struct fm_memory *memory, PyObject *path);
/* The memory of a Memory, borrowed; NULL with ValueError if it is closed. */
struct fm_memory *fm_py_memory_open(PyObject *self);
/* object as an open Memory, or NULL with TypeError or ValueError. Borrowed. */
struct fm_py_memory *fm_py_memory_check(struct fm_py_state *state,
					PyObject *object);

/* py_vector.c: methods of Memory, METH_FASTCALL | METH_KEYWORDS */

PyObject *fm_py_vector_readv(PyObject *self, PyObject *const *args,
			     Py_ssize_t nargs, PyObject *kwnames);
PyObject *fm_py_vector_readv_into(PyObject *self, PyObject *const *args,
				  Py_ssize_t nargs, PyObject *kwnames);
PyObject *fm_py_vector_gather_u64(PyObject *self, PyObject *const *args,
				  Py_ssize_t nargs, PyObject *kwnames);
PyObject *fm_py_vector_prefetch(PyObject *self, PyObject *const *args,
				Py_ssize_t nargs, PyObject *kwnames);

/* py_snapshot.c: what Memory.snapshot() returns */

int fm_py_snapshot_init(PyObject *module, struct fm_py_state *state);
PyObject *fm_py_snapshot_create(struct fm_py_state *state,
				PyObject *memory_object);

/* py_attach.c: the keeper and the functions that attach */

int fm_py_attach_init(PyObject *module, struct fm_py_state *state);

#endif /* FM_PY_H */
