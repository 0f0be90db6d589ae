// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The SIGBUS handler: the only state of the whole process that this library
 * has. Does not copy; fault_guard_copy.h says how the handler and the copy of
 * the architecture work together. Built for faults that almost never come.
 *
 * Invariants
 *
 * 1. The handler recovers only where (a) the kernel raised SIGBUS for an
 *    access (si_code), and (b) the thread was inside the guarded copy. Anything
 *    else is foreign and is passed on.
 * 2. A foreign signal ends where it would have ended without us: in the
 *    handler that was there before, or in the default action with the right
 *    signal number.
 * 3. previous[] only grows and an entry does not change once nr_previous counts
 *    it, so the handler reads it without a lock.
 * 4. A handler that was put on top of ours, and that restores "the previous
 *    one" (ours) and raises the signal again, as faulthandler does
 *    (Modules/faulthandler.c, CPython 3.9 to 3.13), must not send it in
 *    circles: a signal that this process sent itself while the handler that
 *    we passed one on to ran gets the default action.
 */

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fault_guard.h"
#include "fault_guard_copy.h"
#include "util.h"

/* More handlers than this on top of each other, and the last is kept. */
#define FM_FAULT_GUARD_MAX_PREVIOUS 8

static struct {
	pthread_mutex_t mutex;
	struct sigaction previous[FM_FAULT_GUARD_MAX_PREVIOUS];
	size_t nr_previous;
} fm_fault_guard = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* This thread passed a signal on to another handler, which has not returned, or
 * has left another one pending. */
static __thread volatile sig_atomic_t fm_fault_guard_passed_on;

static bool fm_fault_guard_is_pending(int signum)
{
	sigset_t pending;

	return !sigpending(&pending) && sigismember(&pending, signum) == 1;
}

static void fm_fault_guard_default(int signum, bool synchronous)
{
	struct sigaction action = { .sa_handler = SIG_DFL };

	sigaction(signum, &action, NULL);
	/* A faulting access runs again after the return and dies of it. A
	 * signal that was sent has to be sent again; it is blocked until the
	 * return. */
	if (!synchronous)
		raise(signum);
}

static void fm_fault_guard_pass_on(int signum, siginfo_t *info, void *context)
{
	bool synchronous = info->si_code > 0;
	size_t nr =
		__atomic_load_n(&fm_fault_guard.nr_previous, __ATOMIC_ACQUIRE);
	const struct sigaction *previous = &fm_fault_guard.previous[nr - 1];

	if (!synchronous && fm_fault_guard_passed_on &&
	    info->si_pid == getpid()) {
		fm_fault_guard_default(signum, false);
		return;
	}
	if (!(previous->sa_flags & SA_SIGINFO)) {
		if (previous->sa_handler == SIG_DFL ||
		    (previous->sa_handler == SIG_IGN && synchronous)) {
			/* The kernel does not let a fault be ignored either. */
			fm_fault_guard_default(signum, synchronous);
			return;
		}
		if (previous->sa_handler == SIG_IGN)
			return;
	}
	fm_fault_guard_passed_on = 1;
	if (previous->sa_flags & SA_SIGINFO)
		previous->sa_sigaction(signum, info, context);
	else
		previous->sa_handler(signum);
	/* What the handler raised waits for our return, as the signal is
	 * blocked here. */
	fm_fault_guard_passed_on = fm_fault_guard_is_pending(signum);
}

static void fm_fault_guard_handler(int signum, siginfo_t *info, void *context)
{
	int saved_errno = errno;

	/* BUS_MCEERR_AO is a notice about some page, not about an access
	 * (sigaction(2)). */
	if ((info->si_code == BUS_ADRERR || info->si_code == BUS_OBJERR ||
	     info->si_code == BUS_MCEERR_AR) &&
	    fm_fault_guard_copy_recover(context, info->si_addr)) {
		fm_fault_guard_passed_on = 0;
		errno = saved_errno;
		return;
	}
	fm_fault_guard_pass_on(signum, info, context);
	errno = saved_errno;
}

static bool fm_fault_guard_is_ours(const struct sigaction *action)
{
	return (action->sa_flags & SA_SIGINFO) &&
	       action->sa_sigaction == fm_fault_guard_handler;
}

static int fm_fault_guard_install(const struct sigaction *current)
{
	struct sigaction action = {
		.sa_sigaction = fm_fault_guard_handler,
		/* On the alternate stack where there is one: the thread may be
		 * at the end of its own. */
		.sa_flags = SA_SIGINFO | SA_ONSTACK,
	};
	size_t nr = fm_fault_guard.nr_previous;

	/* Full: keep passing on to the last one, which is a live handler. */
	if (nr < FM_FAULT_GUARD_MAX_PREVIOUS) {
		fm_fault_guard.previous[nr] = *current;
		__atomic_store_n(&fm_fault_guard.nr_previous, nr + 1,
				 __ATOMIC_RELEASE);
	}
	sigemptyset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL);
}

int fm_fault_guard_check(struct fm_error *err)
{
	struct sigaction current;
	int ret, os_errno;

	if (sigaction(SIGBUS, NULL, &current))
		return fm_error_os(err, errno, "sigaction");
	if (FM_LIKELY(fm_fault_guard_is_ours(&current)))
		return 0;
	pthread_mutex_lock(&fm_fault_guard.mutex);
	/* Another thread may have been faster. */
	ret = sigaction(SIGBUS, NULL, &current);
	if (!ret && !fm_fault_guard_is_ours(&current))
		ret = fm_fault_guard_install(&current);
	os_errno = errno;
	pthread_mutex_unlock(&fm_fault_guard.mutex);
	return ret ? fm_error_os(err, os_errno, "sigaction") : 0;
}
