/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * What the SIGBUS handler (fault_guard.c) needs of the copy, which there is
 * once for x86-64, once for aarch64 and once in plain C for the rest.
 *
 * The copies in assembly are the clever part that a measurement pays for: 3 ns
 * for 8 bytes where a copy behind sigsetjmp takes 10 and behind
 * __builtin_setjmp 8, of a read of 70. They work because the handler can see
 * from the program counter that the thread was inside the copy, and because
 * the copy uses no stack: the handler sets the program counter to the copy's
 * return. To remove them, build with FM_FAULT_GUARD_GENERIC.
 *
 * Does not install anything.
 */

#ifndef FM_FAULT_GUARD_COPY_H
#define FM_FAULT_GUARD_COPY_H

#include <stdbool.h>

#include "util.h"

#if defined(__x86_64__) && defined(__LP64__) && !defined(FM_FAULT_GUARD_GENERIC)
#define FM_FAULT_GUARD_X86_64 1
#elif defined(__aarch64__) && defined(__LP64__) &&                             \
	!defined(FM_FAULT_GUARD_GENERIC)
#define FM_FAULT_GUARD_AARCH64 1
#endif

/*
 * Called in the signal handler with the context of the interrupted thread
 * (ucontext_t, getcontext(3)). If it was inside fm_fault_guard_copy, make that
 * return address and return true, or not return at all; else return false.
 */
FM_HIDDEN bool fm_fault_guard_copy_recover(void *context, const void *address);

#endif /* FM_FAULT_GUARD_COPY_H */
