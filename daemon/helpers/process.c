/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/kernel_calls.h"

#define END_MS 5000

int helper_know(struct helper_process *h, pid_t pid)
{
	int r;

	if (h->pidfd < 0 || pid <= 0)
		return -EPROTO;
	r = -clock_getcpuclockid(pid, &h->clock);
	if (r < 0) {
		closep(&h->pidfd);
		h->pidfd = -EBADF;
	}
	return r == -ESRCH ? -EPIPE : r;
}

uint64_t helper_uncharged_ns(const struct helper_process *h)
{
	struct timespec t;

	return clock_gettime(h->clock, &t) < 0
		   ? 0
		   : (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec - h->charged_ns;
}

uint64_t helper_used_ns(struct helper_process *h, uint64_t begin_ns)
{
	struct pollfd end = {.fd = h->pidfd, .events = POLLIN};
	uint64_t used_ns = 0;
	struct timespec t;

	/* After the process has ended, its pid may belong to another one, so the clock is read first. */
	if (h->pidfd < 0 || clock_gettime(h->clock, &t) < 0 || poll(&end, 1, 0) != 0)
		return clock_monotonic_ns() - begin_ns;
	used_ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec - h->charged_ns;
	h->charged_ns += used_ns;
	return used_ns;
}

void helper_end(struct helper_process *h)
{
	if (h->pidfd >= 0)
		(void)kernel_pidfd_send_signal(h->pidfd, SIGKILL);
	closep(&h->pidfd);
	closep(&h->fd);
	*h = HELPER_NONE;
}

void helper_end_now(struct helper_process *h)
{
	struct pollfd p = {.fd = h->pidfd, .events = POLLIN};

	(void)kernel_pidfd_send_signal(h->pidfd, SIGKILL);
	(void)poll(&p, 1, END_MS);
	helper_end(h);
}

int helper_own_pidfd(void)
{
	int fd = kernel_pidfd_open(getpid());

	return fd < 0 ? -errno : fd;
}
