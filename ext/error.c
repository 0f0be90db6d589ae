// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * Fills in struct fm_error. Does not allocate and does not read errno.
 * Built for faults that a script expects by the thousand: setting one costs a
 * copy of a short text.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "error.h"

static void fm_error_text(struct fm_error *err, const char *text)
{
	snprintf(err->message, sizeof(err->message), "%s", text);
}

static const char *fm_fault_text(enum fm_fault_reason reason)
{
	switch (reason) {
	case FM_FAULT_UNMAPPED:
		return "no memory segment holds this address";
	case FM_FAULT_OUTSIDE:
		return "no memory segment holds this physical address";
	case FM_FAULT_EXCLUDED:
		return "memory was not saved in the core dump";
	case FM_FAULT_SHORT:
		return "the file ends before this memory";
	case FM_FAULT_IO:
		return "the kernel could not read this memory";
	case FM_FAULT_DENIED:
		return "the kernel does not allow to read this memory";
	case FM_FAULT_FULL:
		return "the snapshot has no room for this memory";
	case FM_FAULT_NONE:
		break;
	}
	return "memory can't be read";
}

int fm_error_fault(struct fm_error *err, enum fm_fault_reason reason,
		   uint64_t address, int os_errno)
{
	err->code = FM_ERROR_FAULT;
	err->reason = reason;
	err->os_errno = os_errno;
	err->address = address;
	if (os_errno)
		snprintf(err->message, sizeof(err->message), "%s (%s)",
			 fm_fault_text(reason), strerror(os_errno));
	else
		fm_error_text(err, fm_fault_text(reason));
	return -1;
}

int fm_error_read(struct fm_error *err, uint64_t address, int os_errno)
{
	enum fm_fault_reason reason = FM_FAULT_IO;

	if (os_errno == 0)
		reason = FM_FAULT_SHORT;
	else if (os_errno == EPERM || os_errno == EACCES)
		reason = FM_FAULT_DENIED;
	return fm_error_fault(err, reason, address, os_errno);
}

int fm_error_os(struct fm_error *err, int os_errno, const char *what)
{
	err->code = FM_ERROR_OS;
	err->reason = FM_FAULT_NONE;
	err->os_errno = os_errno;
	err->address = 0;
	fm_error_text(err, what);
	return -1;
}

int fm_error_no_memory(struct fm_error *err)
{
	err->code = FM_ERROR_NO_MEMORY;
	err->reason = FM_FAULT_NONE;
	err->os_errno = ENOMEM;
	err->address = 0;
	fm_error_text(err, "out of memory");
	return -1;
}

int fm_error_set(struct fm_error *err, enum fm_error_code code,
		 const char *format, ...)
{
	va_list args;

	err->code = code;
	err->reason = FM_FAULT_NONE;
	err->os_errno = 0;
	err->address = 0;
	va_start(args, format);
	vsnprintf(err->message, sizeof(err->message), format, args);
	va_end(args);
	return -1;
}
