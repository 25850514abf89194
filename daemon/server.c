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

static void on_settle(uv_check_t *check)
{
	struct server *s = check->data;

	while (s->dirty) {
		s->dirty = false;
		if (s->cache.needs_changed)
			serve_refresh(s);
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

static void on_drained(uv_idle_t *idle)
{
	struct server *s = idle->data;

	/* Buffers may not be freed under a running read or worker. */
	if (s->cache.io->in_flight > 0 || pool_in_flight(s->cache.pool) > 0 || s->n_connections > 0) {
		usleep(1000);
		return;
	}
	uv_close((uv_handle_t *)idle, NULL);
	uv_close((uv_handle_t *)&s->settle, NULL);
	jobs_close(&s->jobs);
	cache_free(&s->cache);
	io_free(s->cache.io);
	pool_free(s->cache.pool);
}

void server_stop(struct server *s)
{
	if (s->stopping)
		return;
	s->stopping = true;
	unlink(s->socket_path);
	uv_close((uv_handle_t *)&s->listen_poll, NULL);
	while (s->connections)
		connection_close(s->connections);
	uv_idle_init(s->loop, &s->drain);
	s->drain.data = s;
	uv_idle_start(&s->drain, on_drained);
}

void server_free(struct server *s)
{
	closep(&s->listen_fd);
	closep(&s->lock_fd);
}
