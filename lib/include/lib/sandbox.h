/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A place for code that reads bytes from people who are not trusted: after sandbox_enter() the process can
 * compute, use memory, send on sockets that it has, and end. Anything else kills it: it opens, maps for
 * execution, forks and signals nothing, and has no privilege left. For a process of one thread, for good.
 *
 *   seccomp filter       sendto/sendmsg, fstat, anonymous and file mappings without PROT_EXEC, their release,
 * exit capabilities         none limits               CPU seconds, private memory beyond what it has, no
 * files, no core dump
 */

#include <stdint.h>

struct sandbox_limits {
	uint64_t memory_bytes; /* beyond what the process has now */
	uint64_t cpu_s;        /* from now on */
};

/* 0; a negative errno: nothing holds, or only a part of it: the caller decides whether to go on. */
int sandbox_enter(const struct sandbox_limits *limits);
