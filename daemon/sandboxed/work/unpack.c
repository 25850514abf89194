/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's side of unpack.h. */
#include "unpack.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/helpers/message.h"
#include "daemon/helpers/process.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "daemon/storage/shared_memory.h"
#include "unpack_message.h"

#define POLL_MS    200
#define STUCK_S    60 /* time limit without an answer, in seconds, for whatever reason */
#define MAX_STARTS 2  /* maximum number of processes tried for one run */
/* CPU time after which a process is replaced, so that one that was taken over unnoticed does not stay for
 * ever. */
#define LIFE_CPU_NS (60 * NS_PER_S)

struct unpacker {
	struct unpacker *next;
	struct helper_process helper;
	struct shared_memory space;
	uint64_t used_ns;
};

struct unpackers {
	struct unpackers_options options;
	pthread_mutex_t lock; /* guards the fields below; never held while waiting for a process */
	pthread_cond_t added;
	struct unpacker *idle;
	uint32_t n;         /* number of processes, including requested ones */
	uint32_t n_waiting; /* threads */
	uint32_t n_refused; /* refused requests that no waiting thread has seen yet */
};

int unpackers_new(const struct unpackers_options *options, struct unpackers **ret)
{
	struct unpackers *us = calloc(1, sizeof(*us));
	pthread_condattr_t monotonic;

	if (!us)
		return -ENOMEM;
	us->options = *options;
	pthread_mutex_init(&us->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&us->added, &monotonic);
	pthread_condattr_destroy(&monotonic);
	*ret = us;
	return 0;
}

static void unpacker_free(struct unpacker *k)
{
	helper_end(&k->helper);
	shared_memory_free(&k->space);
	free(k);
}

/* Removes a process, so that another one may be requested. */
static void unpacker_lose(struct unpackers *us, struct unpacker *k)
{
	unpacker_free(k);
	pthread_mutex_lock(&us->lock);
	us->n--;
	pthread_cond_signal(&us->added);
	pthread_mutex_unlock(&us->lock);
}

static void unpacker_put(struct unpackers *us, struct unpacker *k)
{
	pthread_mutex_lock(&us->lock);
	k->next = us->idle;
	us->idle = k;
	pthread_cond_signal(&us->added);
	pthread_mutex_unlock(&us->lock);
}

void unpackers_add(struct unpackers *us, int fd)
{
	struct unpacker *k = fd < 0 ? NULL : calloc(1, sizeof(*k));

	if (k) {
		*k = (struct unpacker){.helper = HELPER_NONE, .space = SHARED_MEMORY_INIT};
		k->helper.fd = fd;
		unpacker_put(us, k);
		return;
	}
	if (fd >= 0)
		close(fd);
	pthread_mutex_lock(&us->lock);
	us->n--;
	us->n_refused++;
	pthread_cond_signal(&us->added);
	pthread_mutex_unlock(&us->lock);
}

void unpackers_free(struct unpackers *us)
{
	if (!us)
		return;
	while (us->idle) {
		struct unpacker *k = us->idle;

		us->idle = k->next;
		unpacker_free(k);
	}
	pthread_cond_destroy(&us->added);
	pthread_mutex_destroy(&us->lock);
	free(us);
}

static int unpacker_take(struct unpackers *us, struct unpacker **ret)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += STUCK_S;
	pthread_mutex_lock(&us->lock);
	if (us->n_waiting++ == 0)
		us->n_refused = 0;
	while (!us->idle && r == 0) {
		if (us->n_refused > 0) {
			us->n_refused--;
			r = -EAGAIN;
		} else if (us->n < us->options.n_threads) {
			us->n++;
			pthread_mutex_unlock(&us->lock);
			us->options.ask(us->options.user);
			pthread_mutex_lock(&us->lock);
		} else {
			r = -pthread_cond_timedwait(&us->added, &us->lock, &until);
		}
	}
	if (us->idle) {
		*ret = us->idle;
		us->idle = (*ret)->next;
		r = 0;
	}
	us->n_waiting--;
	pthread_mutex_unlock(&us->lock);
	return r;
}

/* Receives a message of the type. If fd is not NULL, *fd becomes its descriptor. */
static int expect(const struct unpackers *us, const struct unpacker *k, enum unpack_type type, int *fd,
		  struct unpack_message *m)
{
	struct pollfd p = {.fd = k->helper.fd, .events = POLLIN};
	uint64_t begin_ns = clock_monotonic_ns();
	int r;

	while ((r = poll(&p, 1, POLL_MS)) <= 0) {
		if (r < 0 && errno != EINTR)
			return -errno;
		if (type == UNPACK_DONE && helper_uncharged_ns(&k->helper) > us->options.cpu_limit_ns)
			return -EBADMSG;
		if (clock_monotonic_ns() - begin_ns > STUCK_S * NS_PER_S)
			return -ETIMEDOUT;
	}
	r = message_receive(k->helper.fd, m, sizeof(*m), MSG_DONTWAIT, fd, fd ? 1 : 0);
	if (r == -ECONNRESET || r == -EPROTO)
		return -EPIPE;
	return r == 0 && m->type != (uint32_t)type ? -EPIPE : r;
}

/* Gives a new process its output buffer, and waits until it is in its sandbox. */
static int unpacker_begin(const struct unpackers *us, struct unpacker *k)
{
	struct unpack_message m = {.type = UNPACK_BEGIN, .memory_bytes = us->options.memory_bytes};
	int r = shared_memory_new("diesel-unpacked", UNPACK_SPACE_BYTES, SHARED_CONTROL, &k->space);

	if (r == 0)
		r = fd_message_send(k->helper.fd, &m, sizeof(m), (int[]){us->options.memory_fd, k->space.fd},
				    2, 0);
	if (r == 0)
		r = expect(us, k, UNPACK_STARTED, &k->helper.pidfd, &m);
	if (r == 0)
		r = helper_know(&k->helper, m.pid);
	return r < 0 ? r : expect(us, k, UNPACK_READY, NULL, &m);
}

/* Sends a run and waits for its result, which becomes *ret_result. -EPIPE: the process has ended, or sent an
 * invalid reply. */
static int unpacker_run(const struct unpackers *us, struct unpacker *k, const struct unpack_run *run,
			int *ret_result)
{
	struct unpack_message m = {.type = UNPACK_RUN, .run = *run};
	int r = k->space.data ? 0 : unpacker_begin(us, k);

	if (r == 0)
		r = fd_message_send(k->helper.fd, &m, sizeof(m), NULL, 0, 0);
	if (r == 0)
		r = expect(us, k, UNPACK_DONE, NULL, &m);
	if (r == 0 && m.result != 0 && m.result != -EBADMSG && m.result != -ENOMEM)
		r = -EPIPE;
	if (r < 0)
		return r == -ECONNRESET ? -EPIPE : r;
	*ret_result = m.result;
	return 0;
}

int unpackers_run(struct unpackers *us, struct unpacker **k, const struct unpack_run *run,
		  const uint8_t **ret_plain, uint64_t *cpu_ns)
{
	for (int starts = 1;; starts++) {
		uint64_t begin_ns = clock_monotonic_ns(), used_ns;
		int r = *k ? 0 : unpacker_take(us, k), result = 0;

		if (r < 0)
			return r;
		r = unpacker_run(us, *k, run, &result);
		used_ns = helper_used_ns(&(*k)->helper, begin_ns);
		*cpu_ns += used_ns;
		(*k)->used_ns += used_ns;
		if (r == 0) {
			*ret_plain = (*k)->space.data;
			return result;
		}
		unpacker_lose(us, *k);
		*k = NULL;
		/* The process may have been killed because memory was short, perhaps while it was idle. */
		if (r == -EPIPE && starts < MAX_STARTS)
			continue;
		return r == -EPIPE ? -EBADMSG : r;
	}
}

void unpackers_give_back(struct unpackers *us, struct unpacker *k)
{
	if (!k)
		return;
	if (k->used_ns < LIFE_CPU_NS)
		unpacker_put(us, k);
	else
		unpacker_lose(us, k);
}
