/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * A lock for the reads of one open file. /proc/kcore copies every page through
 * one bounce buffer that belongs to the open file (read_kcore in
 * fs/proc/kcore.c, Linux 6.1 and 6.12), so two reads at the same time on one
 * open file description hand out each other's bytes. dup() and fork() share
 * the description, so the lock works between threads and between the two sides
 * of a fork.
 *
 * Does not help against readers that do not take it: prefer an open file of
 * one's own where the kernel allows one.
 */

#ifndef FM_FILE_LOCK_H
#define FM_FILE_LOCK_H

#include "cleanup.h"
#include "error.h"

struct fm_file_lock;

/* The caller owns one reference. */
int fm_file_lock_create(struct fm_file_lock **ret, struct fm_error *err);
struct fm_file_lock *fm_file_lock_get(struct fm_file_lock *lock);
/* NULL is allowed. The last reference frees it, in this process only. */
void fm_file_lock_put(struct fm_file_lock *lock);

void fm_file_lock_acquire(struct fm_file_lock *lock);
void fm_file_lock_release(struct fm_file_lock *lock);

FM_DEFINE_CLEANUP(file_lock, struct fm_file_lock *, fm_file_lock_put(value))

#endif /* FM_FILE_LOCK_H */
