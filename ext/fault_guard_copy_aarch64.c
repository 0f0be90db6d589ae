// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The guarded copy for aarch64.
 * Does not touch the stack between begin and end, so that the handler can
 * leave it at any instruction. Built for 8 bytes, then for other small sizes.
 *
 * AAPCS64: dst in x0, src in x1, size in x2, result in x0; x3 to x7 and v0, v1
 * are free.
 */

#include "fault_guard_copy.h"

#ifdef FM_FAULT_GUARD_AARCH64

#include <ucontext.h>

__asm__(".text\n"
	".balign 32\n"
	".hidden fm_fault_guard_copy_begin\n"
	".hidden fm_fault_guard_copy_fault\n"
	".hidden fm_fault_guard_copy_end\n"
	".hidden fm_fault_guard_copy\n"
	".globl fm_fault_guard_copy\n"
	".globl fm_fault_guard_copy_begin\n"
	".globl fm_fault_guard_copy_fault\n"
	".globl fm_fault_guard_copy_end\n"
	".type fm_fault_guard_copy, %function\n"
	"fm_fault_guard_copy:\n"
	".cfi_startproc\n"
	"fm_fault_guard_copy_begin:\n"
	"	cmp	x2, #8\n"
	"	b.ne	1f\n"
	"	ldr	x3, [x1]\n"
	"	str	x3, [x0]\n"
	"	mov	x0, #0\n"
	"	ret\n"
	"1:	add	x5, x0, x2\n"
	"	add	x6, x1, x2\n"
	"	b.lo	4f\n"
	"	cmp	x2, #16\n"
	"	b.hi	2f\n"
	"	ldr	x3, [x1]\n"
	"	ldr	x4, [x6, #-8]\n"
	"	str	x3, [x0]\n"
	"	str	x4, [x5, #-8]\n"
	"	mov	x0, #0\n"
	"	ret\n"
	/* 17 and more: 16 at a time, the last 16 overlapping. */
	"2:	sub	x7, x6, #16\n"
	"3:	ldr	q0, [x1], #16\n"
	"	str	q0, [x0], #16\n"
	"	cmp	x1, x7\n"
	"	b.lo	3b\n"
	"	ldr	q0, [x7]\n"
	"	str	q0, [x5, #-16]\n"
	"	mov	x0, #0\n"
	"	ret\n"
	/* 0 to 7. */
	"4:	cmp	x2, #4\n"
	"	b.lo	5f\n"
	"	ldr	w3, [x1]\n"
	"	ldr	w4, [x6, #-4]\n"
	"	str	w3, [x0]\n"
	"	str	w4, [x5, #-4]\n"
	"	mov	x0, #0\n"
	"	ret\n"
	"5:	cmp	x2, #2\n"
	"	b.lo	6f\n"
	"	ldrh	w3, [x1]\n"
	"	ldrb	w4, [x6, #-1]\n"
	"	strb	w4, [x5, #-1]\n"
	"	strh	w3, [x0]\n"
	"	mov	x0, #0\n"
	"	ret\n"
	"6:	cbz	x2, 7f\n"
	"	ldrb	w3, [x1]\n"
	"	strb	w3, [x0]\n"
	"7:	mov	x0, #0\n"
	"fm_fault_guard_copy_fault:\n"
	"	ret\n"
	"fm_fault_guard_copy_end:\n"
	".cfi_endproc\n"
	".size fm_fault_guard_copy, . - fm_fault_guard_copy\n");

FM_HIDDEN extern const char fm_fault_guard_copy_begin[];
FM_HIDDEN extern const char fm_fault_guard_copy_fault[];
FM_HIDDEN extern const char fm_fault_guard_copy_end[];

bool fm_fault_guard_copy_recover(void *context, const void *address)
{
	mcontext_t *registers = &((ucontext_t *)context)->uc_mcontext;

	if (registers->pc < (uintptr_t)fm_fault_guard_copy_begin ||
	    registers->pc >= (uintptr_t)fm_fault_guard_copy_end)
		return false;
	registers->regs[0] = (uintptr_t)address;
	registers->pc = (uintptr_t)fm_fault_guard_copy_fault;
	return true;
}

#endif /* FM_FAULT_GUARD_AARCH64 */
