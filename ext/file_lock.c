// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * A process-shared mutex in a page of its own that fork shares.
 * Does not know what it protects. Built for one uncontended acquire and release
 * (about 40 ns) around a system call.
 */

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "file_lock.h"

struct fm_file_lock {
	/* In private memory: each side of a fork counts its own references. */
	unsigned int references;
	/* In shared memory: a fork while another thread reads must not leave
	 * the child with a mutex that nobody will ever unlock. */
	pthread_mutex_t *mutex;
};

static int fm_file_lock_init_mutex(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;
	int ret = pthread_mutexattr_init(&attr);

	if (ret)
		return ret;
	ret = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	/* Robust, because a child may be killed in the middle of a read. */
	if (!ret)
		ret = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (!ret)
		ret = pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
	return ret;
}

int fm_file_lock_create(struct fm_file_lock **ret, struct fm_error *err)
{
	FM_AUTO_FREE struct fm_file_lock *lock = malloc(sizeof(*lock));
	int os_errno;

	if (!lock)
		return fm_error_no_memory(err);
	lock->references = 1;
	lock->mutex = mmap(NULL, sizeof(*lock->mutex), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (lock->mutex == MAP_FAILED)
		return fm_error_os(err, errno, "mmap of a lock");
	os_errno = fm_file_lock_init_mutex(lock->mutex);
	if (os_errno) {
		munmap(lock->mutex, sizeof(*lock->mutex));
		return fm_error_os(err, os_errno, "pthread_mutex_init");
	}
	*ret = FM_STEAL_PTR(lock);
	return 0;
}

struct fm_file_lock *fm_file_lock_get(struct fm_file_lock *lock)
{
	__atomic_fetch_add(&lock->references, 1, __ATOMIC_RELAXED);
	return lock;
}

void fm_file_lock_put(struct fm_file_lock *lock)
{
	if (!lock || __atomic_sub_fetch(&lock->references, 1, __ATOMIC_ACQ_REL))
		return;
	/* No pthread_mutex_destroy: the other side of a fork may use it. */
	munmap(lock->mutex, sizeof(*lock->mutex));
	free(lock);
}

void fm_file_lock_acquire(struct fm_file_lock *lock)
{
	/* It protects no state of ours, so an owner that died left nothing
	 * inconsistent. */
	if (pthread_mutex_lock(lock->mutex) == EOWNERDEAD)
		pthread_mutex_consistent(lock->mutex);
}

void fm_file_lock_release(struct fm_file_lock *lock)
{
	pthread_mutex_unlock(lock->mutex);
}
