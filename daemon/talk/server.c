/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cluster/cluster.h"
#include "daemon/control/control.h"
#include "daemon/storage/io.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "daemon/apart/opener.h"
#include "daemon/cache/peers/sharers.h"
#include "daemon/apart/plugin.h"
#include "daemon/cache/policy.h"

/* Tells people at other places of this node's jobs, now and then (diesel-top --nodes). */

#define EVERY_MS 2000

static void on_publish(uv_timer_t *timer)
{
	const struct server *s = timer->data;
	double uptime_s = (double)(clock_monotonic_ns() - s->start_ns) / 1e9;
	char *text = control_report(s->control, uptime_s, REGISTRY_REPORT_BYTES);

	/* What cannot go out now is old in two seconds. */
	if (text)
		(void)cluster_publish(s->serving.cache.cluster, text);
	free(text);
}

/* Once there is a cluster. */
static void publish_start(struct server *s)
{
	uv_timer_init(s->loop, &s->publish);
	s->publish.data = s;
	s->publishes = true;
	uv_timer_start(&s->publish, on_publish, 0, EVERY_MS);
}

static void publish_stop(struct server *s)
{
	if (!s->publishes)
		return;
	s->publishes = false;
	uv_close((uv_handle_t *)&s->publish, NULL);
	(void)cluster_publish(s->serving.cache.cluster,
			      ""); /* else its node would be taken for one that went silent */
}

/* Chunks that are considered for other nodes at one time. */
#define GIVES_AT_ONCE         64
#define SERVER_MAX_CANDIDATES (SERVER_MAX_CONNECTIONS + GIVES_AT_ONCE)

static void on_cache_change(void *user)
{
	struct server *s = user;

	serving_touch(&s->serving);
}

struct candidate {
	struct session *session; /* NULL: another node wants it */
	struct give_want give;
	uint64_t chunk;
};

/* Returns true if the read gives way to a checkpoint. */
static bool is_held(struct server *s, const struct session *q, uint32_t distance, uint64_t now_ns,
		    uint64_t *again_ns)
{
	uint64_t writer, end_ns = distance > 0 ? read_holds_until(&s->serving.cache.holds, q->uid,
								  cached_storage(q->dataset), now_ns, &writer)
					       : 0;

	if (!end_ns)
		return false;
	job_hold(q->job, writer, now_ns, end_ns);
	if (end_ns < *again_ns)
		*again_ns = end_ns;
	return true;
}

/* *again_ns is lowered where time alone changes that. */
static bool may_load(struct server *s, struct session *q, uint64_t chunk, uint32_t distance, uint64_t taken,
		     uint64_t now_ns, uint64_t *again_ns)
{
	int r;

	if (!q->is_warm)
		return server_may_load(s, q, chunk, distance, taken);
	if (!session_warm_knows(q)) {
		*again_ns = now_ns;
		return false;
	}
	r = server_may_warm(s, q, chunk, taken);
	q->starved = r == -ENOSPC ? r : 0;
	return r == 0;
}

/* Collects the nearest missing chunk of each session that may still get memory in this pass. *ret_again_ns:
 * when there may be more. */
static size_t collect_wants(struct server *s, struct candidate *candidates, struct read_want *wants,
			    uint64_t now_ns, uint64_t *ret_again_ns)
{
	uint64_t taken = cache_taken_bytes(&s->serving.cache);
	size_t n = 0;

	*ret_again_ns = UINT64_MAX;
	s->serving.cache.round++;
	for (struct session *q = s->serving.sessions; q; q = q->next) {
		uint64_t chunk;
		uint32_t distance;

		if (!session_mark(q, &chunk, &distance) || q->starved ||
		    (q->sharer && sharer_waits(q->sharer, now_ns, ret_again_ns)) ||
		    !may_load(s, q, chunk, distance, taken, now_ns, ret_again_ns) ||
		    is_held(s, q, distance, now_ns, ret_again_ns))
			continue;
		candidates[n] = (struct candidate){.session = q, .chunk = chunk};
		wants[n++] = (struct read_want){.lanes = &q->job->read_lanes,
						.storage = cached_storage(q->dataset),
						.uid = q->uid,
						.weight = q->job->read_weight,
						.bytes = q->dataset->chunks[chunk].bytes,
						.distance = distance,
						.waits = distance == 0 && session_is_drained(q),
						.last_served = q->last_served};
	}
	return n;
}

/* Adds a chunk for each job of which other nodes want some. They wait for it, as a batch does here. */
static size_t collect_gives(struct server *s, struct candidate *candidates, struct read_want *wants,
			    size_t room)
{
	struct cache *c = &s->serving.cache;
	struct give_want gives[GIVES_AT_ONCE];
	size_t n = gives_wanted(c, gives, room < GIVES_AT_ONCE ? room : GIVES_AT_ONCE), n_kept = 0;

	for (size_t i = 0; i < n; i++) {
		const struct sharer *m = gives[i].sharer;
		int r = server_may_give(s, m, gives[i].chunk);

		if (r == -EBUSY)
			gives_refuse(c, &gives[i]);
		if (r < 0)
			continue;
		candidates[n_kept] = (struct candidate){.give = gives[i], .chunk = gives[i].chunk};
		wants[n_kept++] = (struct read_want){.lanes = &m->job->read_lanes,
						     .storage = cached_storage(m->dataset),
						     .uid = m->job->uid,
						     .weight = m->job->read_weight,
						     .bytes = m->dataset->chunks[gives[i].chunk].bytes};
	}
	return n_kept;
}

static void load_for_peer(struct server *s, const struct give_want *give)
{
	const struct cached_want want = {.for_peer = true};
	const struct sharer *m = give->sharer;

	/* At a distance: nothing goes for it that a session here is about to need. */
	if (cache_load(&s->serving.cache, m->dataset, give->chunk, 1, m->job, m->place, &want) < 0)
		gives_refuse(&s->serving.cache, give);
}

static void on_settle(uv_check_t *check);

static void on_look_again(uv_timer_t *timer)
{
	struct server *s = timer->data;

	serving_touch(&s->serving);
	on_settle(&s->settle); /* the loop may sleep before it checks */
}

/* Reads that hang stop counting, and others may begin. */
static void look_again(struct server *s, uint64_t now_ns, uint64_t again_ns)
{
	if (again_ns == UINT64_MAX)
		uv_timer_stop(&s->look_again);
	else
		uv_timer_start(&s->look_again, on_look_again,
			       again_ns > now_ns ? (again_ns - now_ns) / NS_PER_MS + 1 : 1, 0);
}

/* For which samples the session's chunk is read: for all, if another session needs them soon. Who asks for
 * samples, few of each chunk, gets the whole chunk when he comes to it for the second time; but what is not
 * head yet is no part of what he wants. */
static struct cached_want want_for(const struct server *s, const struct session *q, uint64_t chunk,
				   uint32_t distance)
{
	const struct cached_want all = {.is_warm = q->is_warm};

	/* Other nodes ask for whole chunks, and give whole ones. */
	if (q->sharer && !q->asked)
		return all;
	if (q->asked && (distance > 0 || q->dataset->chunks[chunk].part))
		return all;
	for (const struct session *o = s->serving.sessions; o; o = o->next) {
		if (o->dataset == q->dataset && !o->asked && !o->subset)
			return all;
	}
	return q->want;
}

/* Starts reads until enough are under way, or no session can use another one. */
static void server_schedule(struct server *s)
{
	struct candidate candidates[SERVER_MAX_CANDIDATES];
	struct read_want wants[SERVER_MAX_CANDIDATES];
	uint64_t again_ns, held_ns;

	for (struct session *q = s->serving.sessions; q; q = q->next)
		q->starved = 0;
	for (;;) {
		uint64_t now_ns = clock_monotonic_ns();
		size_t n = collect_wants(s, candidates, wants, now_ns, &held_ns);
		long pick;
		struct cached_want want;
		struct session *q;

		n += collect_gives(s, candidates + n, wants + n, SERVER_MAX_CANDIDATES - n);
		pick = read_turns_pick(s->serving.cache.turns, wants, n, now_ns, &again_ns);

		if (pick < 0) {
			look_again(s, now_ns, held_ns < again_ns ? held_ns : again_ns);
			return;
		}
		q = candidates[pick].session;
		if (!q) {
			load_for_peer(s, &candidates[pick].give);
			continue;
		}
		want = want_for(s, q, candidates[pick].chunk, wants[pick].distance);
		q->starved = cache_load(&s->serving.cache, q->dataset, candidates[pick].chunk,
					wants[pick].distance, q->job, q->place, &want);
		if (q->starved == 0)
			q->last_served = ++s->cached_clock;
	}
}

/* Returns true if nothing is under way and nobody holds anything that could be given back: nothing will
 * change then. */
static bool is_still(const struct server *s)
{
	const struct cache *c = &s->serving.cache;

	if (c->n_loading > 0 || c->releasing_bytes > 0)
		return false;
	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		if (q->n_filling > 0)
			return false;
	}
	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *segment = c->segments.all[i];

		if (segment && cache_chunk_of(segment) && cache_chunk_of(segment)->pins > 0)
			return false;
	}
	return true;
}

/* There is no room for what it only wants to have in memory: it does without, and nobody gives anything back.
 */
static void serve_full(struct server *s, struct session *q)
{
	if (s->serving.cache.releasing_bytes > 0)
		return;
	if (!session_warm_full(q, clock_monotonic_ns()))
		return;
	session_pump(q);
	serving_touch(&s->serving);
}

/* A session that got no memory asks its client to give back what it holds. If nobody holds anything, its
 * batch becomes an error rather than wait for ever. */
static void serve_starved(struct server *s)
{
	for (struct session *q = s->serving.sessions; q; q = q->next) {
		uint64_t chunk;
		uint32_t distance;

		if (!q->starved)
			continue;
		if (q->is_warm) {
			serve_full(s, q);
			continue;
		}
		if (session_mark(q, &chunk, &distance) && distance == 0 && is_still(s)) {
			session_give_up(q, q->starved, 0);
			session_pump(q);
			serving_touch(&s->serving); /* the other sessions' turn, with what this one leaves */
			return;
		}
		session_pump(q);
	}
}

static void on_orphans(uv_timer_t *timer)
{
	if (!connection_close_orphans(timer->data))
		uv_timer_stop(timer);
}

void server_watch_orphans(struct server *s)
{
	uv_timer_start(&s->orphans, on_orphans, SERVER_ORPHAN_MS, SERVER_ORPHAN_MS);
}

static void on_settle(uv_check_t *check)
{
	struct server *s = check->data;

	while (s->serving.dirty) {
		s->serving.dirty = false;
		if (s->serving.cache.needs_changed && !s->stopping) {
			serving_refresh(&s->serving);
		}
		for (struct session *q = s->serving.sessions; q; q = q->next)
			session_pump(q);
		if (s->serving.cache.unfit)
			cache_fit(&s->serving.cache);
		gives_pump(&s->serving.cache);
		if (!s->stopping)
			server_schedule(s);
		serve_starved(s);
	}
	if (!s->stopping)
		lend_watch_update(&s->lend);
}

struct log_limit *server_lines_of(struct server *s, uint32_t uid)
{
	return &s->lines[uid % SERVER_LINE_PLACES];
}

static struct log_limit *lines_of(void *user, uint32_t uid)
{
	return server_lines_of(user, uid);
}

static int start_engines(struct server *s, struct error *err)
{
	struct readers *readers = &s->serving.cache.readers;
	int r;

	if (s->serving.options.use_io_uring)
		s->io_why = io_uring_check();
	readers->loop = s->loop;
	readers->nursery = s->nursery;
	readers->use_uring = s->serving.options.use_io_uring && s->io_why == 0;
	readers->on_end = on_cache_change;
	readers->user = s;
	r = opener_new(s->loop, s->nursery, &s->opener);
	if (r < 0)
		return error_errno(err, r, "cannot open datasets");
	r = read_turns_new(&s->serving.cache.turns);
	if (r == 0)
		r = pool_new(s->loop, s->serving.options.knobs.workers, &s->serving.cache.pool);
	return r < 0 ? error_errno(err, r, "cannot start worker threads") : 0;
}

/* The nursery's socket is readable only when the nursery has ended. */
static void on_nursery(uv_poll_t *poll, int status, int events)
{
	struct server *s = poll->data;

	(void)status;
	(void)events;
	uv_poll_stop(poll);
	if (s->stopping)
		return;
	log_error("the process that starts readers has ended, so nothing can be read any more: ending");
	s->failed = true;
	raise(SIGTERM);
}

static void start_handles(struct server *s)
{
	accept_init(s);
	uv_poll_init(s->loop, &s->nursery_poll, s->nursery->fd);
	s->nursery_poll.data = s;
	uv_poll_start(&s->nursery_poll, UV_READABLE, on_nursery);
	uv_unref((uv_handle_t *)&s->nursery_poll);
	uv_check_init(s->loop, &s->settle);
	s->settle.data = s;
	uv_check_start(&s->settle, on_settle);
	uv_unref((uv_handle_t *)&s->settle);
	uv_timer_init(s->loop, &s->orphans);
	s->orphans.data = s;
	uv_unref((uv_handle_t *)&s->orphans);
	uv_timer_init(s->loop, &s->silence);
	s->silence.data = s;
	uv_unref((uv_handle_t *)&s->silence);
	uv_timer_init(s->loop, &s->look_again);
	s->look_again.data = s;
	uv_unref((uv_handle_t *)&s->look_again);
	lend_watch_start(&s->lend, s->loop, "", &s->serving.cache);
}

/* If this fails, the cache begins empty. */
static void restore(struct server *s, struct fd_store_items *items)
{
	const struct quota quota = server_quota(s);
	int r = carry_new(s->loop, &quota, items, &s->serving.cache.carry);

	if (r < 0)
		log_warning("chunks do not outlive dieseld: %s", strerror(-r));
	if (s->serving.cache.carry)
		cache_restore(&s->serving.cache);
}

/* If this fails, there is none. */
static void start_staging(struct server *s)
{
	const struct stage_options *options = &s->serving.options.stage;
	const struct quota quota = server_quota(s);
	int r = 0;

	if (options->folder)
		r = stage_new(s->loop, s->nursery, &s->serving.cache, options, &quota,
			      &s->serving.cache.stage);
	if (r < 0)
		log_warning("nothing is staged: %s", strerror(-r));
}

static void on_owners_changed(void *user, struct cluster_group *group)
{
	struct cache *c = user;

	sharers_note_changed(c, group);
	cache_changed(c);
}

int server_start_sharing(struct server *s, struct cluster_child *child)
{
	struct cache *c = &s->serving.cache;
	const struct cluster_handler handler = {
	    .asked = gives_asked, .given = gives_given, .changed = on_owners_changed, .user = c};
	int r;

	r = cluster_new(s->loop, child, &handler, &c->cluster);
	if (r == 0)
		publish_start(s);
	return r;
}

int server_start(struct server *s, uv_loop_t *loop, const char *socket_path,
		 const struct serving_options *options, const struct nursery *nursery,
		 struct fd_store_items *items, struct error *err)
{
	int r;

	*s = (struct server){.loop = loop,
			     .socket_path = socket_path,
			     .serving = {.options = *options},
			     .nursery = nursery,
			     .listen_fd = -EBADF,
			     .lock_fd = -EBADF,
			     .admin = {.fd = -EBADF, .lock_fd = -EBADF},
			     .spare_fd = -EBADF,
			     .start_ns = clock_monotonic_ns(),
			     .start_unix_ns = clock_realtime_ns()};
	s->left_ns = s->start_ns;
	closer_init(&s->closer, nursery);
	s->serving.options.window_cache_bytes = options->knobs.cache_bytes;
	cache_init(&s->serving.cache, options->knobs.cache_bytes);
	s->serving.cache.quotas = options->quotas;
	server_size_by_files(s);
	s->serving.cache.handler.changed = on_cache_change;
	s->serving.cache.handler.count_paid = server_count_paid;
	s->serving.cache.handler.may_take = server_may_take;
	s->serving.cache.handler.lines_of = lines_of;
	s->serving.cache.handler.user = s;
	/* Anybody may talk to us; what they can read decides what they get. */
	r = listen_open(socket_path, 0666, &s->listen_fd, &s->lock_fd, &s->place, err);
	if (r < 0)
		return r;
	r = start_engines(s, err);
	if (r < 0)
		return r;
	s->serving.jobs = (struct jobs){.loop = loop, .proc_root = "/proc"};
	start_handles(s);
	restore(s, items);
	start_staging(s);
	return 0;
}

/* Returns true if a worker is filling a batch. */
static bool is_anything_running(const struct server *s)
{
	for (const struct session *q = s->serving.sessions; q; q = q->next) {
		if (q->n_filling > 0)
			return true;
	}
	return false;
}

static void finish(struct server *s)
{
	uv_close((uv_handle_t *)&s->drain, NULL);
	uv_close((uv_handle_t *)&s->settle, NULL);
	publish_stop(s);
	uv_close((uv_handle_t *)&s->orphans, NULL);
	uv_close((uv_handle_t *)&s->silence, NULL);
	uv_close((uv_handle_t *)&s->look_again, NULL);
	opener_free(s->opener);
	if (s->serving.options.plugins)
		plugins_stop(s->serving.options.plugins);
	lend_watch_stop(&s->lend);
	uv_close((uv_handle_t *)&s->nursery_poll, NULL);
	readers_close(&s->serving.cache.readers);
	s->serving.cache.carry = carry_free(s->serving.cache.carry);
	s->serving.cache.stage = stage_free(s->serving.cache.stage);
	sharers_end_all(&s->serving.cache);
	s->serving.cache.cluster = cluster_free(s->serving.cache.cluster);
	gives_free(&s->serving.cache);
	cache_free(&s->serving.cache);
	jobs_close(&s->serving.jobs);
	pool_free(s->serving.cache.pool);
	read_turns_free(s->serving.cache.turns);
}

static void on_drain(uv_timer_t *timer)
{
	struct server *s = timer->data;
	bool late = clock_monotonic_ns() >= s->drain_until_ns;

	if (is_anything_running(s) && !late)
		return;
	while (s->connections)
		connection_close(s->connections);
	/* Buffers may not be freed under a running worker. */
	if (pool_in_flight(s->serving.cache.pool) == 0 && s->n_connections == 0) {
		finish(s);
	} else if (late) {
		log_warning("tasks of workers that do not end: %llu; ending without them",
			    (unsigned long long)pool_in_flight(s->serving.cache.pool));
		uv_stop(s->loop);
	}
}

uint64_t server_idle_ms(const struct server *s)
{
	struct pollfd waiting = {.fd = s->listen_fd, .events = POLLIN};

	if (s->n_connections > 0 || poll(&waiting, 1, 0) != 0)
		return 0;
	return (clock_monotonic_ns() - s->left_ns) / NS_PER_MS;
}

void server_stop(struct server *s)
{
	if (s->stopping)
		return;
	s->stopping = s->serving.cache.closing = true;
	listen_remove(s->socket_path, &s->place);
	if (s->admin.fd >= 0)
		listen_remove(s->admin.path, &s->admin.place);
	accept_stop(s);
	for (struct session *q = s->serving.sessions; q; q = q->next)
		q->stopped = true;
	s->drain_until_ns = clock_monotonic_ns() + SERVER_DRAIN_MS * NS_PER_MS;
	uv_timer_init(s->loop, &s->drain);
	s->drain.data = s;
	/* Polls, because what it waits for ends in several places, and soon. */
	uv_timer_start(&s->drain, on_drain, 0, 2);
}

void server_free(struct server *s)
{
	/* Clients that were not let in may have sent something. */
	if (s->listen_fd >= 0)
		closer_close(&s->closer, s->listen_fd);
	if (s->admin.fd >= 0)
		closer_close(&s->closer, s->admin.fd);
	closer_free(&s->closer);
	closep(&s->admin.lock_fd);
	closep(&s->lock_fd);
}
