/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A helper process of the fork server (sandboxed/fork_server.h), as seen by the process that gives it
 * work. It can be killed whatever it does, and its CPU time is measured, not reported by it. One thread at
 * a time. */

#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct helper_process {
	int fd, pidfd;
	clockid_t clock;     /* CPU time of the process */
	uint64_t charged_ns; /* CPU time charged so far, on that clock */
};

#define HELPER_NONE ((struct helper_process){.fd = -EBADF, .pidfd = -EBADF})

/* Gets the CPU clock of a process from the pid that it reported. The process must not have seen any user's
 * data yet, so that its report can be trusted. 0 or -errno; -EPIPE: the process is gone. */
int helper_know(struct helper_process *h, pid_t pid);
/* Returns the process's CPU time since the last call. If it has ended, returns the time since begin_ns, an
 * upper bound. The process itself is not asked, because one that was taken over would report too little. */
uint64_t helper_used_ns(struct helper_process *h, uint64_t begin_ns);
/* Returns the CPU time since the last call of helper_used_ns(), while the process lives. */
uint64_t helper_uncharged_ns(const struct helper_process *h);
/* Kills the process and closes its descriptors. */
void helper_end(struct helper_process *h);
/* Kills the process and waits for its end, at most 5 seconds: until it is gone, it can write to memory that
 * it has mapped. */
void helper_end_now(struct helper_process *h);

/* Called in the helper: returns a pidfd of its own process, to be sent, or -errno. */
int helper_own_pidfd(void);
