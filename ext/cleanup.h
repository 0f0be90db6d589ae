/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * Scope guards: variables that release what they hold when they go out of
 * scope, and the way to take it out of them.
 *
 * Does not know the types of the library; a type that needs a guard of its own
 * declares it in its header with FM_DEFINE_CLEANUP.
 */

#ifndef FM_CLEANUP_H
#define FM_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define FM_CLEANUP(function) __attribute__((__cleanup__(function)))

/* Defines fm_cleanup_NAME for variables of TYPE, which are released by CALL
 * (an expression of the variable's value, named "value"). */
#define FM_DEFINE_CLEANUP(name, type, call)                                    \
	static inline void fm_cleanup_##name(type *slot)                       \
	{                                                                      \
		type value = *slot;                                            \
		call;                                                          \
	}

/* The pointer in the guarded variable P; P is NULL from here on. */
#define FM_STEAL_PTR(p)                                                        \
	({                                                                     \
		__auto_type stolen_ = (p);                                     \
		(p) = NULL;                                                    \
		stolen_;                                                       \
	})

/* The descriptor in the guarded variable FD; FD is -1 from here on. */
static inline int fm_steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}

static inline void fm_cleanup_free(void *slot)
{
	free(*(void **)slot);
}

static inline void fm_cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

#define FM_AUTO_FREE FM_CLEANUP(fm_cleanup_free)
#define FM_AUTO_FD FM_CLEANUP(fm_cleanup_fd)

#endif /* FM_CLEANUP_H */
