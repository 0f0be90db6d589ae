// SPDX-License-Identifier: LGPL-2.1-or-later
// Copyright (c) 2026 The drgn-fastmem authors

/*
 * The guarded copy for x86-64.
 * Does not touch the stack between begin and end, so that the handler can
 * leave it at any instruction. Built for 8 bytes, then for other small sizes;
 * 512 bytes and more go to the processor's own string copy.
 *
 * System V AMD64 ABI: dst in rdi, src in rsi, size in rdx, result in rax; the
 * direction flag is clear.
 */

/* For REG_RIP (getcontext(3), <sys/ucontext.h>). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "fault_guard_copy.h"

#ifdef FM_FAULT_GUARD_X86_64

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
	".type fm_fault_guard_copy, @function\n"
	"fm_fault_guard_copy:\n"
	".cfi_startproc\n"
	"fm_fault_guard_copy_begin:\n"
	"	cmpq	$8, %rdx\n"
	"	jne	1f\n"
	"	movq	(%rsi), %rax\n"
	"	movq	%rax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	/* 9 bytes and more. */
	"1:	jb	4f\n"
	"	cmpq	$16, %rdx\n"
	"	ja	2f\n"
	"	movq	(%rsi), %rax\n"
	"	movq	-8(%rsi,%rdx), %rcx\n"
	"	movq	%rax, (%rdi)\n"
	"	movq	%rcx, -8(%rdi,%rdx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	/* 17 to 511: 16 at a time, the last 16 overlapping. */
	"2:	cmpq	$512, %rdx\n"
	"	jae	8f\n"
	"	leaq	-16(%rdx), %rcx\n"
	"	xorl	%eax, %eax\n"
	"3:	movups	(%rsi,%rax), %xmm0\n"
	"	movups	%xmm0, (%rdi,%rax)\n"
	"	addq	$16, %rax\n"
	"	cmpq	%rcx, %rax\n"
	"	jb	3b\n"
	"	movups	(%rsi,%rcx), %xmm0\n"
	"	movups	%xmm0, (%rdi,%rcx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	/* 0 to 7. */
	"4:	cmpl	$4, %edx\n"
	"	jb	5f\n"
	"	movl	(%rsi), %eax\n"
	"	movl	-4(%rsi,%rdx), %ecx\n"
	"	movl	%eax, (%rdi)\n"
	"	movl	%ecx, -4(%rdi,%rdx)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"5:	cmpl	$2, %edx\n"
	"	jb	6f\n"
	"	movzwl	(%rsi), %eax\n"
	"	movzbl	-1(%rsi,%rdx), %ecx\n"
	"	movb	%cl, -1(%rdi,%rdx)\n"
	"	movw	%ax, (%rdi)\n"
	"	xorl	%eax, %eax\n"
	"	ret\n"
	"6:	testl	%edx, %edx\n"
	"	je	7f\n"
	"	movzbl	(%rsi), %eax\n"
	"	movb	%al, (%rdi)\n"
	"7:	xorl	%eax, %eax\n"
	"	ret\n"
	"8:	movq	%rdx, %rcx\n"
	"	rep movsb\n"
	"	xorl	%eax, %eax\n"
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
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t pc = registers[REG_RIP];

	if (pc < (uintptr_t)fm_fault_guard_copy_begin ||
	    pc >= (uintptr_t)fm_fault_guard_copy_end)
		return false;
	registers[REG_RAX] = (greg_t)(uintptr_t)address;
	registers[REG_RIP] = (greg_t)(uintptr_t)fm_fault_guard_copy_fault;
	return true;
}

#endif /* FM_FAULT_GUARD_X86_64 */
