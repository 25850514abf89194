/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits the system calls of our processes by seccomp filters, which list the allowed calls. A
 * filter cannot be removed, and a process inherits its parents' filters. sandbox.c has the table.
 *
 * sandbox_enter() is for code that parses untrusted bytes. Afterwards the process can only compute, use
 * memory, send on open sockets, and end. Any other system call kills the process, because its code needs
 * none. The process must have a single thread.
 *
 * - The seccomp filter allows sending, fstat, reading the clock, exit, mappings without PROT_EXEC, and
 * waking threads of its own, as pthread_once() does. A
 * process that serves may also receive messages, close descriptors, and set timers.
 * - It has no capabilities left.
 * - Its CPU time and its private memory are limited; it can write no file and dump no core.
 *
 * sandbox_filter() is for processes that open files, use the network, or load programs into the kernel.
 * There, a call that is not in the list fails with EPERM, since libraries try calls that they can do without.
 * No list allows running a program, tracing or writing to another process, mounting, or new namespaces.
 */

#include <stdbool.h>
#include <stdint.h>

struct sandbox_limits {
	uint64_t memory_bytes; /* in addition to the memory of the process at this time */
	uint64_t cpu_s;        /* additional CPU time from now on; 0: no limit */
	bool serves; /* serves requests in the sandbox, so it may also receive messages, close descriptors and
			set timers */
};

/* Returns 0 or -errno. After a failure, the limits are not or only partly in force: the caller decides
 * whether to continue. */
int sandbox_enter(const struct sandbox_limits *limits);

/* Purpose of a process of the daemon. The files with its code are in daemon/. */
enum sandbox_profile {
	SANDBOX_COMPUTES,    /* used by sandbox_enter() */
	SANDBOX_SERVES,      /* used by sandbox_enter() with `serves` */
	SANDBOX_DAEMON,      /* dieseld itself, its threads included */
	SANDBOX_FORK_SERVER, /* sandboxed/fork_server.h: includes the rights of the processes that it forks */
	SANDBOX_READER,      /* sandboxed/reader.h, by threads */
	SANDBOX_RING_MAKER,  /* a reader that uses io_uring, until it has its ring */
	SANDBOX_RING_READER, /* a reader that uses io_uring, once it has its ring */
	SANDBOX_OPENER,      /* sandboxed/opener.h, until it enters the sandbox */
	SANDBOX_CLOSER,      /* sandboxed/closer.h */
	SANDBOX_LOADER,      /* codecs, plug-ins, decompressors, until they enter the sandbox */
	SANDBOX_STAGER,      /* sandboxed/stager.h */
	SANDBOX_SENSOR_KEEPER, /* sense/: includes the rights of the watcher that it forks */
	SANDBOX_SENSOR,        /* the watcher of sense/, once its BPF programs are loaded */
	SANDBOX_ASSIST_KEEPER, /* assist/: includes the rights of the watcher and the readers */
	SANDBOX_ASSIST,        /* the watcher of assist/, once its BPF programs are loaded */
	SANDBOX_AHEAD,         /* a reader of assist/, once it runs as the job's user */
	SANDBOX_PEER_KEEPER,   /* cluster/: includes the rights of dieseld-peer */
	SANDBOX_PEER,
	SANDBOX_N_PROFILES,
};

/* Limits the calling thread, and threads that it starts, to the profile from now on. 0 or -errno: the system
 * has no filters, or refuses them. */
int sandbox_filter(enum sandbox_profile profile);
