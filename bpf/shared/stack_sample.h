/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * Data shared by the sampler in the kernel and the collector. A sample holds raw addresses, which the
 * collector turns into names while the process still lives.
 */

#include "bpf/event.h"

#define STACK_NATIVE_MAX 24 /* frames, innermost first; the rest is left out */
#define STACK_PYTHON_MAX 64
#define STACK_THREADS    64 /* maximum threads of an interpreter among which the sampled one is searched */

enum stack_flag {
	STACK_IN_KERNEL = 1 << 0, /* the thread was in the kernel: in a call, or in a fault */
};

struct stack_sample {
	uint64_t at_ns;
	uint32_t tid, tgid;
	uint32_t cpu;
	uint16_t flags;      /* enum stack_flag */
	uint16_t syscall_nr; /* 0xffff: not in a system call */
	uint16_t n_native, n_python;
	uint32_t reserved;
	uint64_t native[STACK_NATIVE_MAX]; /* instruction addresses */
	uint64_t python[STACK_PYTHON_MAX]; /* addresses of code objects; 0: a frame without code */
};

#define PYTHON_OWNER_NONE 255 /* no such owner: no frame is skipped */
#define PYTHON_CODE_TAG   3   /* low bits of a pointer to code: from 3.14 on, its way of reference counting */

/* Location of a process's Python frames: offsets within CPython's structures, which differ between its
 * versions. */
struct python_layout {
	uint64_t runtime;           /* address of _PyRuntime */
	uint32_t interpreters_head; /* in _PyRuntimeState: PyInterpreterState * */
	uint32_t threads_head;      /* in PyInterpreterState: PyThreadState * */
	uint32_t thread_next;       /* in PyThreadState */
	uint32_t thread_id;         /* in PyThreadState: pthread_self() */
	uint32_t thread_frame;      /* in PyThreadState: innermost frame, or its holder */
	uint32_t holder_frame;      /* in that holder, _PyCFrame */
	uint32_t frame_previous;
	uint32_t frame_code;
	uint32_t frame_owner;
	uint8_t has_holder;
	uint8_t
	    owner_skipped; /* frames with this owner, or a greater one, are C frames without Python code */
	uint8_t reserved[2];
};

#ifndef __BPF__
_Static_assert(sizeof(struct stack_sample) == 32 + 8 * (STACK_NATIVE_MAX + STACK_PYTHON_MAX),
	       "the BPF programs use this layout");
_Static_assert(sizeof(struct python_layout) == 48, "the BPF programs use this layout");
#endif
