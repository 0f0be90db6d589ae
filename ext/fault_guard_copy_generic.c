// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The guarded copy in plain C: memcpy behind sigsetjmp.
 * Not used where there is one in assembly, but for the tests. Costs 10 ns more
 * a copy; what is inside it is marked by a pointer that each thread has.
 */

#include "fault_guard_copy.h"

#if !defined(FM_FAULT_GUARD_X86_64) && !defined(FM_FAULT_GUARD_AARCH64)

#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "fault_guard.h"

struct fm_fault_guard_scope {
	sigjmp_buf jump;
	const void *volatile address;
};

static __thread struct fm_fault_guard_scope *volatile fm_fault_guard_scope;

const void *fm_fault_guard_copy(void *dst, const void *src, size_t size)
{
	struct fm_fault_guard_scope scope = { .address = NULL };

	if (sigsetjmp(scope.jump, 0) == 0) {
		fm_fault_guard_scope = &scope;
		/* The marker must be set before the first load and until after
		 * the last, and a value must be read in one piece. */
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
		switch (size) {
		case 1:
			*(char *)dst = *(const volatile char *)src;
			break;
		case 2: {
			uint16_t v;
			memcpy(&v, src, sizeof(v));
			memcpy(dst, &v, sizeof(v));
			break;
		}
		case 4: {
			uint32_t v;
			memcpy(&v, src, sizeof(v));
			memcpy(dst, &v, sizeof(v));
			break;
		}
		case 8: {
			uint64_t v;
			memcpy(&v, src, sizeof(v));
			memcpy(dst, &v, sizeof(v));
			break;
		}
		default:
			memcpy(dst, src, size);
		}
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	}
	fm_fault_guard_scope = NULL;
	return scope.address;
}

bool fm_fault_guard_copy_recover(void *context, const void *address)
{
	struct fm_fault_guard_scope *scope = fm_fault_guard_scope;
	sigset_t mask;

	(void)context;
	if (!scope)
		return false;
	scope->address = address;
	/* siglongjmp leaves the handler without the return that would have
	 * unblocked the signal; saving the mask in sigsetjmp would cost a
	 * system call a copy. */
	sigemptyset(&mask);
	sigaddset(&mask, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
	siglongjmp(scope->jump, 1);
}

#endif
