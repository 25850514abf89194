/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A place for code that reads bytes from people who are not trusted. After sandbox_enter() the process can
 * compute, use memory, send on sockets that it has, and end; any other system call kills it. There is no way
 * back. The process must have one thread.
 *
 * - The seccomp filter allows sending, fstat, reading the clock, exit, mappings without PROT_EXEC, and
 * waking threads of its own, as pthread_once() does. A
 * process that serves may also receive messages, close descriptors, and set timers.
 * - It has no capabilities left.
 * - Its CPU time and its private memory are limited; it can write no file and dump no core.
 */

#include <stdbool.h>
#include <stdint.h>

struct sandbox_limits {
	uint64_t memory_bytes; /* beyond what the process has now */
	uint64_t cpu_s;        /* from now on; 0: no limit */
	bool serves;           /* it is told what to do from within: it may receive */
};

/* 0 or -errno. After a failure none or a part of this is in force: the caller decides whether to go on. */
int sandbox_enter(const struct sandbox_limits *limits);
