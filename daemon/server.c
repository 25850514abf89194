/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "policy.h"

#define IO_DEPTH        32
#define MAX_CONNECTIONS 1024

void server_touch(struct server *s)
{
	s->dirty = true;
}

static void on_cache_change(void *user)
{
	server_touch(user);
}

struct candidate {
	struct session *session;
	uint64_t chunk;
};

/* The nearest missing chunk of each session that may still get memory in this pass. */
static size_t collect_fetches(struct server *s, struct candidate *candidates, struct policy_fetch *fetches)
{
	size_t n = 0;

	s->cache.round++;
	for (struct session *q = s->sessions; q; q = q->next) {
		uint64_t chunk;
		uint32_t distance;

		if (!session_mark(q, &chunk, &distance) || q->starved)
			continue;
		candidates[n] = (struct candidate){.session = q, .chunk = chunk};
		fetches[n++] = (struct policy_fetch){.distance = distance, .last_served = q->last_served};
	}
	return n;
}

/* Starts reads until enough are under way or nobody can use another one. */
static void server_schedule(struct server *s)
{
	struct candidate candidates[MAX_CONNECTIONS];
	struct policy_fetch fetches[MAX_CONNECTIONS];

	for (struct session *q = s->sessions; q; q = q->next)
		q->starved = false;
	while (s->cache.n_loading < CACHE_MAX_LOADING) {
		size_t n = collect_fetches(s, candidates, fetches);
		long pick = policy_pick_fetch(fetches, n);
		struct session *q;

		if (pick < 0)
			return;
		q = candidates[pick].session;
		if (cache_load(&s->cache, q->dataset, candidates[pick].chunk, fetches[pick].distance,
			       q->job) < 0)
			q->starved = true;
		else
			q->last_served = ++s->served_clock;
	}
}

static void watch_idle(struct server *s);

static void on_idle(uv_timer_t *timer)
{
	watch_idle(timer->data);
}

/* Gives up datasets that nobody has used for long, and looks again when the next one is due. */
static void watch_idle(struct server *s)
{
	uint64_t now_ns = clock_monotonic_ns(), keep_ns = SERVER_KEEP_IDLE_MS * NS_PER_MS;
	uint64_t oldest_ns = cache_drop_idle(&s->cache, now_ns > keep_ns ? now_ns - keep_ns : 0);

	if (oldest_ns == 0)
		uv_timer_stop(&s->idle);
	else
		uv_timer_start(&s->idle, on_idle, (oldest_ns + keep_ns - now_ns) / NS_PER_MS + 1, 0);
}

static void on_settle(uv_check_t *check)
{
	struct server *s = check->data;

	while (s->dirty) {
		s->dirty = false;
		if (s->cache.needs_changed && !s->stopping) {
			serve_refresh(s);
			watch_idle(s);
		}
		for (struct session *q = s->sessions; q; q = q->next)
			session_pump(q);
		if (s->cache.unfit)
			cache_fit(&s->cache);
		if (!s->stopping)
			server_schedule(s);
		/* A session that got no memory asks its client for what it holds. */
		for (struct session *q = s->sessions; q; q = q->next) {
			if (q->starved)
				session_pump(q);
		}
	}
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (errno == EMFILE || errno == ENFILE)
			log_warning(
			    "a client was not let in: no file descriptors left (raise the limit of open "
			    "files, now used up)");
		return;
	}
	s->n_accepted++;
	if (s->n_connections >= MAX_CONNECTIONS || connection_new(s, fd) < 0) {
		log_warning("a client was not let in: %u are connected", s->n_connections);
		close(fd);
	}
}

static int start_engines(struct server *s, struct error *err)
{
	int r = io_new(s->loop, s->options.use_io_uring, IO_DEPTH, &s->cache.io, &s->io_why);

	if (r < 0)
		return error_errno(err, r, "cannot start reading threads");
	r = pool_new(s->loop, s->options.knobs.workers, &s->cache.pool);
	if (r < 0) {
		io_free(s->cache.io);
		return error_errno(err, r, "cannot start worker threads");
	}
	return 0;
}

static void start_handles(struct server *s)
{
	uv_poll_init(s->loop, &s->listen_poll, s->listen_fd);
	s->listen_poll.data = s;
	uv_poll_start(&s->listen_poll, UV_READABLE, on_listen);
	uv_check_init(s->loop, &s->settle);
	s->settle.data = s;
	uv_check_start(&s->settle, on_settle);
	uv_unref((uv_handle_t *)&s->settle);
	uv_timer_init(s->loop, &s->idle);
	s->idle.data = s;
	uv_unref((uv_handle_t *)&s->idle);
}

int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serve_options *options, struct error *err)
{
	int r;

	*s = (struct server){.loop = loop,
			     .socket_path = socket_path,
			     .options = *options,
			     .listen_fd = -EBADF,
			     .lock_fd = -EBADF,
			     .start_ns = clock_monotonic_ns()};
	s->options.window_cache_bytes = options->knobs.cache_bytes;
	cache_init(&s->cache, options->knobs.cache_bytes);
	s->cache.on_change = on_cache_change;
	s->cache.user = s;
	r = listen_open(socket_path, &s->listen_fd, &s->lock_fd, err);
	if (r < 0)
		return r;
	r = start_engines(s, err);
	if (r < 0)
		return r;
	s->jobs = (struct jobs){.loop = loop, .proc_root = "/proc"};
	start_handles(s);
	return 0;
}

/* Batches that a worker fills. */
static bool is_anything_running(const struct server *s)
{
	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->n_filling > 0)
			return true;
	}
	return false;
}

static void finish(struct server *s)
{
	uv_close((uv_handle_t *)&s->drain, NULL);
	uv_close((uv_handle_t *)&s->settle, NULL);
	uv_close((uv_handle_t *)&s->idle, NULL);
	jobs_close(&s->jobs);
	cache_free(&s->cache);
	io_free(s->cache.io);
	pool_free(s->cache.pool);
}

static void on_drain(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool late = clock_monotonic_ns() >= s->drain_until_ns;

	if (is_anything_running(s) && !late)
		return;
	while (s->connections)
		connection_close(s->connections);
	/* Buffers may not be freed under a running read or worker. */
	if (s->cache.io->in_flight == 0 && pool_in_flight(s->cache.pool) == 0 && s->n_connections == 0) {
		finish(s);
	} else if (late) {
		log_warning("%llu reads from storage do not return: ending without them",
			    (unsigned long long)s->cache.io->in_flight);
		uv_stop(s->loop);
	}
}

void server_stop(struct server *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	unlink(s->socket_path);
	uv_close((uv_handle_t *)&s->listen_poll, NULL);
	for (struct session *q = s->sessions; q; q = q->next)
		q->stopped = true;
	s->drain_until_ns = clock_monotonic_ns() + SERVER_DRAIN_MS * NS_PER_MS;
	uv_timer_init(s->loop, &s->drain);
	s->drain.data = s;
	/* Looks again and again: what it waits for ends in several places, and soon. */
	uv_timer_start(&s->drain, on_drain, 0, 2);
}

void server_free(struct server *s)
{
	closep(&s->listen_fd);
	closep(&s->lock_fd);
}
