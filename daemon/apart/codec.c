/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of codec.h. */
#include "codec.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "codec_message.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"

#define LOOK_MS    1000
#define STUCK_S    60 /* without a sample that is done: the process is killed. CPU time is limited by itself */
#define END_MS     5000
#define MAX_STARTS 2 /* more tries with another process, where one ended at its first sample */

struct codec {
	struct codec *next;
	int fd, pidfd;
	clockid_t clock;     /* CPU time of the process */
	uint64_t charged_ns; /* on that clock: somebody has paid up to here */
	int sandbox;
};

struct codecs {
	const struct nursery *nursery;
	struct codec_begin begin;
	uint8_t *slots;
	int slots_fd, plugin_fd;
	pthread_mutex_t lock; /* for what follows; never held while waiting */
	struct codec *idle;
	uint32_t n_idle, max_idle;
};

int codecs_new(const struct nursery *nursery, const struct recipe *recipe, int plugin_fd, uint64_t seed,
	       const struct ring_layout *layout, uint32_t n_slots, uint32_t batch, uint8_t *slots, int fd,
	       uint32_t max_idle, struct codecs **ret)
{
	struct codecs *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->nursery = nursery;
	c->begin = (struct codec_begin){
	    .recipe = *recipe, .seed = seed, .layout = *layout, .n_slots = n_slots, .batch = batch};
	c->slots = slots;
	c->slots_fd = fd;
	c->plugin_fd = plugin_fd;
	c->max_idle = max_idle;
	pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

static void codec_end(struct codec *k)
{
	if (k->pidfd >= 0)
		(void)kernel_pidfd_send_signal(k->pidfd, SIGKILL);
	closep(&k->pidfd);
	closep(&k->fd);
	free(k);
}

/* Ends one at work: until it is gone, it can write to the slots. */
static void codec_end_now(struct codec *k)
{
	struct pollfd p = {.fd = k->pidfd, .events = POLLIN};

	(void)kernel_pidfd_send_signal(k->pidfd, SIGKILL);
	(void)poll(&p, 1, END_MS);
	codec_end(k);
}

void codecs_free(struct codecs *c)
{
	if (!c)
		return;
	while (c->idle) {
		struct codec *k = c->idle;

		c->idle = k->next;
		codec_end(k);
	}
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* How many of the items are done. */
static uint32_t count_done(const struct ring_item *items, uint32_t first, uint32_t end)
{
	uint32_t i = first;

	while (i < end && __atomic_load_n(&items[i].location, __ATOMIC_RELAXED) == 0)
		i++;
	return i - first;
}

/* Takes a message. *fd, if fd is not NULL, becomes the descriptor that came with it. */
static int take(const struct codec *k, struct codec_message *m, int *fd)
{
	int fds[FD_MESSAGE_MAX_FDS], r;
	size_t n_fds;

	r = fd_message_receive(k->fd, m, sizeof(*m), MSG_DONTWAIT, fds, &n_fds);
	if (r <= 0)
		return r < 0 ? r : -EPIPE;
	for (size_t i = 0; i < n_fds; i++) {
		if (i == 0 && fd)
			*fd = fds[0];
		else
			close(fds[i]);
	}
	return r == sizeof(*m) ? 0 : -EPROTO;
}

/* Waits for a message; -ETIMEDOUT: for too long without another item that is done. */
static int await(const struct codec *k, const struct ring_item *items, uint32_t first, uint32_t end)
{
	struct pollfd p = {.fd = k->fd, .events = POLLIN};
	uint32_t most = 0;
	int quiet_s = 0, r;

	while ((r = poll(&p, 1, LOOK_MS)) <= 0) {
		uint32_t n_done = count_done(items, first, end);

		if (r < 0 && errno != EINTR)
			return -errno;
		quiet_s = n_done > most ? 0 : quiet_s + 1;
		most = n_done > most ? n_done : most;
		if (quiet_s >= STUCK_S)
			return -ETIMEDOUT;
	}
	return 0;
}

static int start(const struct nursery *nursery, int *ret_fd)
{
	struct pollfd p = {.fd = nursery->fd, .events = POLLOUT};
	int r;

	while ((r = nursery_start(nursery, NURSERY_CODEC, ret_fd)) == -EAGAIN) {
		if (poll(&p, 1, LOOK_MS) == 0)
			return -EAGAIN;
	}
	return r;
}

/* Waits for a message of the type; its descriptor becomes *fd, as of take(). */
static int expect(const struct codec *k, enum codec_type type, struct codec_message *m, int *fd)
{
	int r = await(k, NULL, 0, 0);

	if (r == 0)
		r = take(k, m, fd);
	return r == 0 && m->type != (uint32_t)type ? -EPROTO : r;
}

/* Whether the plug-in, if there is one, opened. */
static int check_ready(struct codec_message *m, const struct recipe *recipe, struct error *err)
{
	if (m->done.status == 0)
		return 0;
	m->done.error.text[sizeof(m->done.error.text) - 1] = '\0';
	return error_set(err, m->done.status < 0 ? m->done.status : -EPROTO, "codec %s: %s",
			 recipe->codec.name, m->done.error.text);
}

static int codec_new(const struct codecs *c, struct codec **ret, struct error *err)
{
	static const struct timeval patience = {.tv_sec = STUCK_S};
	struct codec *k = calloc(1, sizeof(*k));
	struct codec_message m = {.type = CODEC_BEGIN, .begin = c->begin};
	const int fds[2] = {c->slots_fd, c->plugin_fd};
	int r;

	if (!k)
		return -ENOMEM;
	k->fd = k->pidfd = -EBADF;
	r = start(c->nursery, &k->fd);
	/* One that does not receive must not hold up a thread for ever. */
	if (r == 0 && setsockopt(k->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
		r = -errno;
	if (r == 0)
		r = fd_message_send(k->fd, &m, sizeof(m), fds, c->plugin_fd >= 0 ? 2 : 1, 0);
	if (r == 0)
		r = expect(k, CODEC_STARTED, &m, &k->pidfd);
	if (r == 0 && (k->pidfd < 0 || m.pid <= 0))
		r = -EPROTO;
	/* It has not seen a byte of anybody's yet, so that its number can be believed. */
	if (r == 0)
		r = -clock_getcpuclockid(m.pid, &k->clock);
	if (r == 0)
		r = expect(k, CODEC_READY, &m, NULL);
	if (r == 0)
		r = check_ready(&m, &c->begin.recipe, err);
	if (r < 0) {
		codec_end(k);
		return r == -ESRCH ? -EPIPE : r;
	}
	k->sandbox = m.sandbox;
	*ret = k;
	return 0;
}

static int codec_take(struct codecs *c, struct codec **ret, struct error *err)
{
	struct codec *k;

	pthread_mutex_lock(&c->lock);
	k = c->idle;
	if (k) {
		c->idle = k->next;
		c->n_idle--;
	}
	pthread_mutex_unlock(&c->lock);
	*ret = k;
	return k ? 0 : codec_new(c, ret, err);
}

static void codec_give_back(struct codecs *c, struct codec *k, bool is_large)
{
	bool keep;

	pthread_mutex_lock(&c->lock);
	keep = !is_large && c->n_idle < c->max_idle;
	if (keep) {
		k->next = c->idle;
		c->idle = k;
		c->n_idle++;
	}
	pthread_mutex_unlock(&c->lock);
	if (!keep)
		codec_end(k);
}

static int send_grant(const struct codec *k, const struct codec_segment *grant)
{
	struct codec_message m = {.type = CODEC_SEGMENTS,
				  .segments = {.bytes = {grant->bytes}, .grant = true}};

	return grant->fd < 0 ? 0 : fd_message_send(k->fd, &m, sizeof(m), &grant->fd, 1, 0);
}

static int send_segments(const struct codec *k, const struct codec_work *w)
{
	for (uint32_t i = 0; i < w->n_segments; i += 2) {
		uint32_t n = w->n_segments - i < 2 ? 1 : 2;
		struct codec_message m = {.type = CODEC_SEGMENTS};
		int fds[2], r;

		for (uint32_t j = 0; j < n; j++) {
			fds[j] = w->segments[i + j].fd;
			m.segments.bytes[j] = w->segments[i + j].bytes;
		}
		r = fd_message_send(k->fd, &m, sizeof(m), fds, n, 0);
		if (r < 0)
			return r;
	}
	return send_grant(k, &w->grant);
}

/* Takes down which forms it says that it made: they must lie where they were allowed to. */
static int take_made(const struct codec_work *w, const int64_t *labels, uint32_t next)
{
	uint64_t at = w->grant_offset;

	for (uint32_t i = w->first; w->made_bytes && i < next; i++) {
		int64_t bytes = __atomic_load_n(&labels[i], __ATOMIC_RELAXED);

		if (bytes < 0 || (bytes > 0 && w->grant.fd < 0) ||
		    (uint64_t)bytes > w->grant.bytes - (at < w->grant.bytes ? at : w->grant.bytes))
			return -EPROTO;
		at += ((uint64_t)bytes + CODEC_FORM_ALIGN - 1) / CODEC_FORM_ALIGN * CODEC_FORM_ALIGN;
		w->made_bytes[i - w->first] = (uint32_t)bytes;
	}
	return 0;
}

/* The process's CPU time since somebody last paid for it, or, if it has ended, the time since then: the most
 * that it can have taken. It is not asked: who takes it over would say that it takes nothing. */
static uint64_t codec_used_ns(struct codec *k, uint64_t begin_ns)
{
	struct pollfd end = {.fd = k->pidfd, .events = POLLIN};
	uint64_t used_ns = 0;
	struct timespec t;

	/* Its number may be another's as soon as it has ended, so the clock is read first. */
	if (clock_gettime(k->clock, &t) < 0 || poll(&end, 1, 0) != 0)
		return clock_monotonic_ns() - begin_ns;
	used_ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec - k->charged_ns;
	k->charged_ns += used_ns;
	return used_ns;
}

/* The process may have been taken over: what it says must fit what it was told. */
static bool is_answer(const struct codec_message *m, const struct codec_work *w)
{
	const struct codec_done *done = &m->done;
	bool names_item = done->status < 0 || done->n_damaged > 0;

	return m->type == CODEC_DONE && done->status <= 0 && done->next <= w->end &&
	       (done->status < 0 || done->next > w->first) && (!names_item || done->item < w->end) &&
	       done->n_damaged <= w->end - w->first;
}

static int order(const struct codec *k, const struct codec_work *w, const struct ring_item *items,
		 const int64_t *labels, struct codec_done *ret)
{
	struct codec_message m = {.type = CODEC_ORDER,
				  .order = {.epoch = w->epoch,
					    .slot = w->slot,
					    .first = w->first,
					    .end = w->end,
					    .grant_offset = w->grant_offset}};
	int r = send_segments(k, w);

	if (r == 0)
		r = fd_message_send(k->fd, &m, sizeof(m), NULL, 0, 0);
	if (r == 0)
		r = await(k, items, w->first, w->end);
	if (r == 0)
		r = take(k, &m, NULL);
	if (r == 0 && m.type == CODEC_LATE)
		r = -ETIMEDOUT;
	if (r == 0 && !is_answer(&m, w))
		r = -EPROTO;
	if (r == 0)
		r = take_made(w, labels, m.done.next);
	if (r < 0)
		return r;
	m.done.error.text[sizeof(m.done.error.text) - 1] = '\0';
	*ret = m.done;
	return 0;
}

/* The process ended, or was ended, at this item. */
static int give_up(struct codecs *c, const struct codec_work *w, struct ring_item *items, uint32_t at,
		   int why, struct codec_result *ret)
{
	uint8_t *slot = c->slots + (size_t)w->slot * c->begin.layout.slot_bytes;
	uint64_t bytes = recipe_item_bytes(&c->begin.recipe);
	int r = error_set(&ret->error, why == -ETIMEDOUT ? -ETIMEDOUT : -EBADMSG,
			  why == -ETIMEDOUT ? "decoding it takes too long"
					    : "it ends the processes that are to decode it");

	ret->item = at;
	ret->next = at + 1;
	ret->n_damaged = 1;
	if (c->begin.recipe.damage == RECIPE_DAMAGE_ERROR)
		return r;
	memset(slot + c->begin.layout.payload_offset + at * bytes, 0, bytes);
	items[at].location = items[at].bytes = 0;
	return 0;
}

static int say_no_process(const struct codecs *c, int r, struct error *err)
{
	if (c->begin.recipe.kind == RECIPE_CODEC && r == -EPIPE)
		return error_set(err, -EIO, "codec %s ends the processes that open it",
				 c->begin.recipe.codec.name);
	return error_errno(err, r, "no process can be had that decodes images");
}

int codecs_decode(struct codecs *c, const struct codec_work *w, struct codec_result *result)
{
	struct ring_item *items =
	    (struct ring_item *)(c->slots + (size_t)w->slot * c->begin.layout.slot_bytes);
	const int64_t *labels = (const int64_t *)((const uint8_t *)items + c->begin.layout.labels_offset);

	*result = (struct codec_result){.next = w->first, .item = w->first, .error = ERROR_INIT};
	if (w->made_bytes)
		memset(w->made_bytes, 0, (w->end - w->first) * sizeof(*w->made_bytes));
	for (uint32_t starts = 0;; starts++) {
		uint64_t begin_ns = clock_monotonic_ns();
		struct codec_done done = {0};
		struct codec *k;
		uint32_t n_done;
		int r = codec_take(c, &k, &result->error);

		if (r == -EPIPE && starts < MAX_STARTS) /* it ended before it was there */
			continue;
		if (r < 0)
			return result->error.code < 0 ? r : say_no_process(c, r, &result->error);
		result->sandbox = k->sandbox;
		r = order(k, w, items, labels, &done);
		result->cpu_ns += codec_used_ns(k, begin_ns);
		if (r == 0) {
			codec_give_back(c, k, done.is_large);
			result->next = done.next;
			result->n_damaged = done.n_damaged + (done.status < 0);
			result->item = done.item;
			result->error = done.error;
			result->full = done.full;
			memcpy(result->ways, done.ways, sizeof(result->ways));
			result->prospect = done.prospect;
			return done.status;
		}
		codec_end_now(k);
		result->n_replaced++;
		if (w->made_bytes)
			memset(w->made_bytes, 0, (w->end - w->first) * sizeof(*w->made_bytes));
		n_done = count_done(items, w->first, w->end);
		/* It may have been killed for memory: the sample is at fault if it ends one after the other.
		 */
		if (n_done > 0 && r != -ETIMEDOUT) {
			result->next = w->first + n_done;
			return 0;
		}
		if (r != -ETIMEDOUT && starts < MAX_STARTS)
			continue;
		return give_up(c, w, items, w->first + n_done, r, result);
	}
}
