/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A helper process of the fork server's (sandboxed/fork_server.h) as whoever gives it work sees it: it can be
 * ended, whatever it does, and its CPU time is known, whatever it says. One thread at a time. */

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct helper_process {
	int fd, pidfd;
	clockid_t clock;     /* CPU time of the process */
	uint64_t charged_ns; /* on that clock: somebody has paid up to here */
};

#define HELPER_NONE ((struct helper_process){.fd = -EBADF, .pidfd = -EBADF})

/* Of a process that has said its number, and has not seen a byte of anybody's yet: so that it can be
 * believed. 0 or -errno; -EPIPE: it is gone. */
int helper_know(struct helper_process *h, pid_t pid);
/* The process's CPU time since the last call, or, if it has ended, the time since begin_ns: the most that it
 * can have taken. It is not asked: who takes it over would say that it takes nothing. */
uint64_t helper_used_ns(struct helper_process *h, uint64_t begin_ns);
/* The CPU time since the last call of that, while the process lives. */
uint64_t helper_uncharged_ns(const struct helper_process *h);
/* Kills it. */
void helper_end(struct helper_process *h);
/* Kills it and waits for its end, some seconds at most: until it is gone it can write to what it has mapped.
 */
void helper_end_now(struct helper_process *h);

/* In the helper: a descriptor of its own process, to be sent. -errno. */
int helper_own_pidfd(void);
