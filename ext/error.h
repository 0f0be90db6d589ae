/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Copyright (c) 2026 The drgn-fastmem authors */

/*
 * The one error type of the library. Functions that can fail return 0 or -1
 * and fill in the struct fm_error that the caller owns.
 *
 * Does not allocate (the text is in a fixed buffer), so that a fault can be
 * reported from inside drgn's callback. Does not know Python or drgn.
 */

#ifndef FM_ERROR_H
#define FM_ERROR_H

#include <stdint.h>

enum fm_error_code {
	FM_ERROR_NONE,
	/* Memory at .address can't be read; .reason says why. */
	FM_ERROR_FAULT,
	/* A system call failed; .os_errno says how. */
	FM_ERROR_OS,
	/* The file is not one that this library reads. */
	FM_ERROR_FORMAT,
	/* The caller asked for something that makes no sense. */
	FM_ERROR_ARGUMENT,
	FM_ERROR_NO_MEMORY,
};

enum fm_fault_reason {
	FM_FAULT_NONE,
	/* No segment holds the virtual address, and no page table maps it. */
	FM_FAULT_UNMAPPED,
	/* The segment holds the address, but its bytes were not saved. */
	FM_FAULT_EXCLUDED,
	/* No segment holds the physical address. */
	FM_FAULT_OUTSIDE,
	/* The kernel could not read the byte; .os_errno says how. */
	FM_FAULT_IO,
	/* The file ends before the byte. */
	FM_FAULT_SHORT,
	/* The kernel does not allow the read; .os_errno says how. */
	FM_FAULT_DENIED,
	/* A snapshot has no room for another page. */
	FM_FAULT_FULL,
};

#define FM_ERROR_MESSAGE_SIZE 160

struct fm_error {
	enum fm_error_code code;
	enum fm_fault_reason reason;
	/* errno of the failed call, 0 if there was none. */
	int os_errno;
	/* FM_ERROR_FAULT: the FIRST address that can't be read, in bytes, in
	 * the address space (virtual or physical) that the caller read from. */
	uint64_t address;
	/* English, without address or errno, always terminated. */
	char message[FM_ERROR_MESSAGE_SIZE];
};

/* Each fills in the whole of *err and returns -1, for "return fm_error_...". */
int fm_error_fault(struct fm_error *err, enum fm_fault_reason reason,
		   uint64_t address, int os_errno);
/* A read of the file ended in front of address, with os_errno, or 0 at the end
 * of the file. */
int fm_error_read(struct fm_error *err, uint64_t address, int os_errno);
/* os_errno is passed, not read from errno, because anything between the failed
 * call and here could have changed it. */
int fm_error_os(struct fm_error *err, int os_errno, const char *what);
int fm_error_no_memory(struct fm_error *err);
__attribute__((__format__(__printf__, 3, 4))) int
fm_error_set(struct fm_error *err, enum fm_error_code code, const char *format,
	     ...);

#endif /* FM_ERROR_H */
