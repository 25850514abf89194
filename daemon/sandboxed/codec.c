/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of codec.h. */
#include "codec.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "codec_message.h"
#include "daemon/helpers/process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"

#define TURN_MS    50   /* length of a turn; after it, others may get the worker */
#define START_MS   1000 /* time to wait for a busy fork server */
#define STUCK_S    60   /* time in turns without a finished sample, after which the process is killed */
#define LATE_S     2    /* extra CPU time until a process that has not ended itself is killed */
#define MAX_STARTS 2    /* number of further processes to try, if one ended at its first sample */

struct codec {
	struct codec *next;
	struct helper_process helper;
	uint64_t paid_ns; /* time when its CPU time was last charged */
	int sandbox;
};

/* State of a worker that waits for a process. */
struct wait {
	const struct codecs *codecs;
	const struct codec_work *work;
	struct codec *codec;
	const struct ring_item *items; /* NULL: the process has no order yet */
	uint64_t *cpu_ns;              /* CPU time of all processes */
	uint32_t n_done;
	uint64_t begin_cpu_ns; /* *cpu_ns when n_done last changed */
	uint32_t quiet_ms;     /* time in turns since then */
};

struct codecs {
	const struct fork_server *fork_server;
	struct codec_begin begin;
	uint8_t *slots;
	int slots_fd, plugin_fd;
	_Atomic bool cancelled;
	pthread_mutex_t lock; /* guards the fields below; never held while waiting */
	struct codec *idle;
	uint32_t n_idle, max_idle;
};

int codecs_new(const struct codecs_setup *setup, struct codecs **ret)
{
	struct codecs *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->fork_server = setup->fork_server;
	c->begin = (struct codec_begin){.recipe = *setup->recipe,
					.seed = setup->seed,
					.layout = *setup->layout,
					.n_slots = setup->n_slots,
					.batch = setup->batch,
					.sample_layout = (uint32_t)setup->sample_layout};
	if (setup->field)
		snprintf(c->begin.field, sizeof(c->begin.field), "%s", setup->field);
	if (c->begin.field[0] && chunk_layout_has_columns(setup->sample_layout)) {
		int r = column_find(setup->columns, setup->field, strlen(setup->field), &c->begin.column);

		if (r < 0) {
			free(c);
			return r;
		}
	}
	c->slots = setup->slots;
	c->slots_fd = setup->slots_fd;
	c->plugin_fd = setup->plugin_fd;
	c->max_idle = setup->max_idle;
	pthread_mutex_init(&c->lock, NULL);
	*ret = c;
	return 0;
}

static void codec_end(struct codec *k)
{
	helper_end(&k->helper);
	free(k);
}

/* Kills a process at work and waits for its end: until then it can write to the slots. */
static void codec_end_now(struct codec *k)
{
	helper_end_now(&k->helper);
	free(k);
}

void codecs_cancel(struct codecs *c)
{
	atomic_store_explicit(&c->cancelled, true, memory_order_relaxed);
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

/* Returns the number of items done. */
static uint32_t count_done(const struct ring_item *items, uint32_t first, uint32_t end)
{
	uint32_t i = first;

	while (i < end && __atomic_load_n(&items[i].location, __ATOMIC_RELAXED) == 0)
		i++;
	return i - first;
}

/* Receives a message. If fd is not NULL, *fd becomes the first descriptor that came with it. */
static int take(const struct codec *k, struct codec_message *m, int *fd)
{
	int fds[FD_MESSAGE_MAX_FDS], r;
	size_t n_fds;

	r = fd_message_receive(k->helper.fd, m, sizeof(*m), MSG_DONTWAIT, fds, &n_fds);
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

/* Returns the process's CPU time since it was last charged, and marks it as charged. */
static uint64_t codec_used_ns(struct codec *k)
{
	uint64_t before_ns = k->paid_ns;

	k->paid_ns = clock_monotonic_ns();
	return k->helper.pidfd < 0 ? 0 : helper_used_ns(&k->helper, before_ns);
}

/* Lets the worker serve others until this task's next turn. The process is stopped in between. */
static void pause_turn(const struct wait *w)
{
	struct codec *k = w->codec;

	if (k && k->helper.pidfd >= 0)
		(void)kernel_pidfd_send_signal(k->helper.pidfd, SIGSTOP);
	pool_pause(w->work->pool, w->work->task);
	if (!k || k->helper.pidfd < 0)
		return;
	k->paid_ns = clock_monotonic_ns();
	(void)kernel_pidfd_send_signal(k->helper.pidfd, SIGCONT);
}

/* Ends a turn of waiting. -ETIMEDOUT: too many turns, or too much CPU time, since the last finished item.
 * -ECANCELED. */
static int end_turn(struct wait *w)
{
	uint32_t n_done = w->items ? count_done(w->items, w->work->first, w->work->end) : 0;

	if (atomic_load_explicit(&w->codecs->cancelled, memory_order_relaxed))
		return -ECANCELED;
	if (w->codec)
		*w->cpu_ns += codec_used_ns(w->codec);
	if (n_done > w->n_done) {
		w->n_done = n_done;
		w->begin_cpu_ns = *w->cpu_ns;
		w->quiet_ms = 0;
	}
	w->quiet_ms += TURN_MS;
	if (w->quiet_ms >= STUCK_S * 1000 ||
	    *w->cpu_ns - w->begin_cpu_ns >= (CODEC_SAMPLE_CPU_S + LATE_S) * NS_PER_S)
		return -ETIMEDOUT;
	if (w->work->pool && pool_turn_is_over(w->work->pool, w->work->task, *w->cpu_ns))
		pause_turn(w);
	return 0;
}

/* Waits until a message can be received. */
static int await(struct wait *w)
{
	struct pollfd p = {.fd = w->codec->helper.fd, .events = POLLIN};
	int r;

	while ((r = poll(&p, 1, TURN_MS)) <= 0) {
		if (r < 0 && errno != EINTR)
			return -errno;
		r = end_turn(w);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Sends a message. A process that does not receive delays only its own turns: its socket has a send
 * timeout. */
static int send_message(struct wait *w, const struct codec_message *m, const int *fds, size_t n_fds)
{
	int r;

	while ((r = fd_message_send(w->codec->helper.fd, m, sizeof(*m), fds, n_fds, 0)) == -EAGAIN) {
		r = end_turn(w);
		if (r < 0)
			return r;
	}
	return r;
}

static int start(const struct fork_server *fork_server, struct wait *w, int *ret_fd)
{
	struct pollfd p = {.fd = fork_server->fd, .events = POLLOUT};
	int r;

	while ((r = fork_server_start(fork_server, HELPER_CODEC, ret_fd)) == -EAGAIN) {
		if (poll(&p, 1, TURN_MS) != 0)
			continue;
		if (w->quiet_ms >= START_MS)
			return -EAGAIN;
		r = end_turn(w);
		if (r < 0)
			return r;
	}
	return r;
}

/* Receives a message, which must have this type. *fd: as for take(). */
static int expect(struct wait *w, enum codec_type type, struct codec_message *m, int *fd)
{
	int r = await(w);

	if (r == 0)
		r = take(w->codec, m, fd);
	return r == 0 && m->type != (uint32_t)type ? -EPROTO : r;
}

/* Returns 0 if there is no plug-in, or if it opened successfully. */
static int check_ready(struct codec_message *m, const struct recipe *recipe, struct error *err)
{
	if (m->done.status == 0)
		return 0;
	m->done.error.text[sizeof(m->done.error.text) - 1] = '\0';
	return error_set(err, m->done.status < 0 ? m->done.status : -EPROTO, "codec %s: %s",
			 recipe->codec.name, m->done.error.text);
}

/* Starts a process. w->codec is NULL before and afterwards. */
static int codec_new(const struct codecs *c, struct wait *w, struct codec **ret, struct error *err)
{
	static const struct timeval patience = {.tv_usec = TURN_MS * 1000};
	struct codec *k = calloc(1, sizeof(*k));
	struct codec_message m = {.type = CODEC_BEGIN, .begin = c->begin};
	const int fds[2] = {c->slots_fd, c->plugin_fd};
	int r;

	if (!k)
		return -ENOMEM;
	k->helper = HELPER_NONE;
	r = start(c->fork_server, w, &k->helper.fd);
	w->codec = k;
	k->paid_ns = clock_monotonic_ns();
	if (r == 0 && setsockopt(k->helper.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0)
		r = -errno;
	if (r == 0)
		r = send_message(w, &m, fds, c->plugin_fd >= 0 ? 2 : 1);
	if (r == 0)
		r = expect(w, CODEC_STARTED, &m, &k->helper.pidfd);
	if (r == 0)
		r = helper_know(&k->helper, m.pid);
	if (r == 0)
		r = expect(w, CODEC_READY, &m, NULL);
	if (r == 0)
		r = check_ready(&m, &c->begin.recipe, err);
	w->codec = NULL;
	if (r < 0) {
		*w->cpu_ns += codec_used_ns(k);
		codec_end(k);
		return r;
	}
	k->sandbox = m.sandbox;
	*ret = k;
	return 0;
}

static int codec_take(struct codecs *c, struct wait *w, struct codec **ret, struct error *err)
{
	struct codec *k;

	pthread_mutex_lock(&c->lock);
	k = c->idle;
	if (k) {
		c->idle = k->next;
		c->n_idle--;
	}
	pthread_mutex_unlock(&c->lock);
	if (!k)
		return codec_new(c, w, ret, err);
	k->paid_ns = clock_monotonic_ns();
	*ret = k;
	return 0;
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

static int send_grant(struct wait *w, const struct codec_segment *grant)
{
	struct codec_message m = {.type = CODEC_SEGMENTS,
				  .segments = {.bytes = {grant->bytes}, .grant = true}};

	return grant->fd < 0 ? 0 : send_message(w, &m, &grant->fd, 1);
}

static int send_segments(struct wait *wait)
{
	const struct codec_work *w = wait->work;

	for (uint32_t i = 0; i < w->n_segments; i += 2) {
		uint32_t n = w->n_segments - i < 2 ? 1 : 2;
		struct codec_message m = {.type = CODEC_SEGMENTS};
		int fds[2], r;

		for (uint32_t j = 0; j < n; j++) {
			fds[j] = w->segments[i + j].fd;
			m.segments.bytes[j] = w->segments[i + j].bytes;
		}
		r = send_message(wait, &m, fds, n);
		if (r < 0)
			return r;
	}
	return send_grant(wait, &w->grant);
}

/* Records the decoded copies that the process reports. -EPROTO: one does not fit in the grant. */
static int take_made(const struct codec_work *w, const int64_t *labels, uint32_t next)
{
	uint64_t at = w->grant_offset;

	for (uint32_t i = w->first; w->made_bytes && i < next; i++) {
		int64_t bytes = __atomic_load_n(&labels[i], __ATOMIC_RELAXED);

		if (bytes < 0 || (bytes > 0 && w->grant.fd < 0) ||
		    (uint64_t)bytes > w->grant.bytes - (at < w->grant.bytes ? at : w->grant.bytes))
			return -EPROTO;
		at += ((uint64_t)bytes + CODEC_DECODED_ALIGN - 1) / CODEC_DECODED_ALIGN * CODEC_DECODED_ALIGN;
		w->made_bytes[i - w->first] = (uint32_t)bytes;
	}
	return 0;
}

/* Checks a reply against the order: the process may have been taken over. */
static bool is_answer(const struct codec_message *m, const struct codec_work *w)
{
	const struct codec_done *done = &m->done;
	bool names_item = done->status < 0 || done->n_damaged > 0;

	return m->type == CODEC_DONE && done->status <= 0 && done->next <= w->end &&
	       (done->status < 0 || done->next > w->first) && (!names_item || done->item < w->end) &&
	       done->n_damaged <= w->end - w->first;
}

static int order(struct wait *wait, const int64_t *labels, struct codec_done *ret)
{
	const struct codec_work *w = wait->work;
	struct codec_message m = {.type = CODEC_ORDER,
				  .order = {.epoch = w->epoch,
					    .slot = w->slot,
					    .first = w->first,
					    .end = w->end,
					    .grant_offset = w->grant_offset}};
	int r = send_segments(wait);

	if (r == 0)
		r = send_message(wait, &m, NULL, 0);
	if (r == 0)
		r = await(wait);
	if (r == 0)
		r = take(wait->codec, &m, NULL);
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

/* Marks the item as damaged because its process ended or was killed. */
static int give_up(struct codecs *c, const struct codec_work *w, struct ring_item *items, uint32_t at,
		   int why, struct codec_result *ret)
{
	uint8_t *slot = c->slots + (size_t)w->slot * c->begin.layout.slot_bytes;
	uint64_t bytes = recipe_item_bytes(&c->begin.recipe);
	int r = error_set(&ret->error, why == -ETIMEDOUT ? -ETIMEDOUT : -EBADMSG,
			  why == -ETIMEDOUT ? "decoding takes too long"
					    : "the sample crashes the processes that decode it");

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
		return error_set(err, -EIO, "codec %s crashes when it is opened", c->begin.recipe.codec.name);
	return error_errno(err, r, "cannot start a process that decodes images");
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
		struct wait wait = {
		    .codecs = c, .work = w, .cpu_ns = &result->cpu_ns, .begin_cpu_ns = result->cpu_ns};
		struct codec_done done = {0};
		struct codec *k = NULL;
		uint32_t n_done;
		int r = atomic_load_explicit(&c->cancelled, memory_order_relaxed)
			    ? -ECANCELED
			    : codec_take(c, &wait, &k, &result->error);

		if (r == -EPIPE && starts < MAX_STARTS) /* the process ended before it was ready */
			continue;
		if (r < 0)
			return result->error.code < 0 ? r : say_no_process(c, r, &result->error);
		result->sandbox = k->sandbox;
		wait = (struct wait){.codecs = c,
				     .work = w,
				     .codec = k,
				     .items = items,
				     .cpu_ns = &result->cpu_ns,
				     .begin_cpu_ns = result->cpu_ns};
		r = order(&wait, labels, &done);
		result->cpu_ns += codec_used_ns(k);
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
		if (r == -ECANCELED)
			return error_set(&result->error, r, "no client needs the batch any more");
		result->n_replaced++;
		if (w->made_bytes)
			memset(w->made_bytes, 0, (w->end - w->first) * sizeof(*w->made_bytes));
		n_done = count_done(items, w->first, w->end);
		/* The OOM killer may have killed the process: the sample is to blame only if several
		 * processes end at it. */
		if (n_done > 0 && r != -ETIMEDOUT) {
			result->next = w->first + n_done;
			return 0;
		}
		if (r != -ETIMEDOUT && starts < MAX_STARTS)
			continue;
		return give_up(c, w, items, w->first + n_done, r, result);
	}
}
