/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client. Messages are answered in order; opening a dataset goes to a process of its own (opener.h), and
 * nothing more is read from the client until that is done. A client that breaks the protocol or does not read
 * its replies is cut off, and loses only its own resources.
 */
#include "connection.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/transport.h"
#include "daemon/sandboxed/plugin.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/control/control.h"
#include "daemon/fetch/fetcher.h"
#include "daemon/node/admin.h"
#include "daemon/node/peer.h"
#include "dataset/subset.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/text.h"
#include "server.h"

/* ---- clients that owe a message ---- */

#define DEADLINE_CHECK_MS 1000

/* Sends the client the reason, in case it still reads, and ends the connection. */
static void give_up(struct connection *c)
{
	struct error err = ERROR_INIT;

	error_set(&err, -ETIMEDOUT,
		  c->greeted ? "the rest of the subset did not arrive within %d s"
			     : "no HELLO message arrived within %d s",
		  (c->greeted ? CONNECTION_SUBSET_MS : CONNECTION_HELLO_MS) / 1000);
	(void)connection_reply_error(c, &err, -ETIMEDOUT);
	connection_cut(c, -ETIMEDOUT);
}

/* Returns true if the client missed its deadline. If this process did not run, a message that came in time
 * may still be unread; it is read before the next check. */
static bool is_late(struct connection *c, uint64_t now_ns)
{
	union wire_message m;

	if (!c->due_ns || now_ns < c->due_ns)
		return false;
	if (c->overdue || transport_peek(c->fd, &m) == -EAGAIN)
		return true;
	c->overdue = true;
	return false;
}

static void on_deadline_check(uv_timer_t *timer)
{
	struct server *s = timer->data;
	uint64_t now_ns = clock_monotonic_ns();
	bool any = false;

	for (struct connection *c = s->connections, *next; c; c = next) {
		next = c->next;
		any = any || c->due_ns;
		if (is_late(c, now_ns))
			give_up(c);
	}
	if (!any)
		uv_timer_stop(timer);
}

/* Sets the deadline for the client's next message, from now; 0: none. */
static void connection_expect(struct connection *c, uint32_t ms)
{
	struct server *s = c->server;

	c->overdue = false;
	c->due_ns = ms ? clock_monotonic_ns() + ms * NS_PER_MS : 0;
	if (ms && !uv_is_active((uv_handle_t *)&s->silence))
		uv_timer_start(&s->silence, on_deadline_check, DEADLINE_CHECK_MS, DEADLINE_CHECK_MS);
}

/* ---- subset of the next session ---- */

/* Frees the parts of a subset that were sent, and their reservation in the cache. */
static void connection_drop_subset(struct connection *c)
{
	free(c->subset_words);
	c->subset_words = NULL;
	c->server->serving.cache.slot_bytes -= c->subset_bytes;
	c->subset_bytes = 0;
	connection_expect(c, 0);
}

static int refuse_space(const struct connection *c, uint64_t bytes, struct error *err)
{
	return error_set(err, -ENOSPC,
			 "the cache has no space for a subset of %s (%llu KiB): start dieseld with a larger "
			 "--cache",
			 c->dataset->path, (unsigned long long)(bytes >> 10));
}

/* Reserves space for the whole subset, and for its index, at the first part. */
static int reserve(struct connection *c, struct error *err)
{
	struct cache *cache = &c->server->serving.cache;
	uint64_t n_samples = c->dataset->info.n_samples, bytes = subset_bytes(n_samples);
	int r;

	if (cache_floor_bytes(cache) + bytes > cache->limit_bytes)
		return refuse_space(c, bytes, err);
	c->subset_words = calloc(subset_words(n_samples), sizeof(*c->subset_words));
	if (!c->subset_words)
		return error_errno(err, -ENOMEM, "cannot store a subset of %s", c->dataset->path);
	cache->slot_bytes += bytes;
	c->subset_bytes = bytes;
	r = server_check_usage(c->server, c, err);
	if (r == 0 && !cache_make_space(cache, 0))
		r = refuse_space(c, bytes, err);
	if (r < 0)
		connection_drop_subset(c);
	return r;
}

static bool is_zero(const uint64_t *words, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		if (words[i])
			return false;
	}
	return true;
}

/* Receives a part of a subset, and answers. The dataset must be open. Returns as connection_reply(), or
 * -EPROTO. */
static int connection_take_part(struct connection *c, const struct wire_subset *m)
{
	uint64_t n_words = subset_words(c->dataset->info.n_samples), first, n;
	struct error err = ERROR_INIT;
	union wire_message answer;
	int r = 0;

	if (m->part >= (n_words + WIRE_SUBSET_WORDS - 1) / WIRE_SUBSET_WORDS)
		return -EPROTO;
	first = m->part * WIRE_SUBSET_WORDS;
	n = n_words - first < WIRE_SUBSET_WORDS ? n_words - first : WIRE_SUBSET_WORDS;
	if (!is_zero(m->words + n, WIRE_SUBSET_WORDS - n))
		return -EPROTO;
	if (!c->subset_words)
		r = reserve(c, &err);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	memcpy(c->subset_words + first, m->words, n * sizeof(*m->words));
	connection_expect(c, CONNECTION_SUBSET_MS);
	protocol_init(&answer, WIRE_SUBSET_REPLY);
	return connection_reply(c, &answer, NULL, 0);
}

/* Moves the subset that was sent to *ret, for a session that chooses n_chosen samples. -EPROTO: none was
 * sent, or its number of samples differs; -ENOMEM. */
static int connection_steal_subset(struct connection *c, uint64_t n_chosen, struct subset **ret)
{
	uint64_t *words = c->subset_words;
	struct subset *subset;
	int r;

	if (!words)
		return -EPROTO;
	c->subset_words = NULL;
	connection_drop_subset(c); /* the session counts the subset from now on */
	r = subset_new(c->dataset->info.n_samples, words, &subset);
	if (r < 0)
		return r == -EINVAL ? -EPROTO : r;
	if (subset_count(subset) != n_chosen) {
		subset_free(subset);
		return -EPROTO;
	}
	*ret = subset;
	return 0;
}

/* ---- STATUS, JOBS, WHY and SET ---- */

/* Limit, in bytes, of the reply texts that one user's connections hold, each until its next request.
 * Administrators have no limit. */
#define USER_TEXT_BYTES (8u << 20)

static uint64_t text_bytes_of(const struct server *s, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct connection *c = s->connections; c; c = c->next)
		bytes += c->uid == uid ? c->text.bytes : 0;
	return bytes;
}

static int text_new(struct connection *c, const char *text, struct error *err)
{
	size_t bytes = strlen(text);
	int r;

	shared_memory_discard(&c->text); /* previous reply, even if the client kept its descriptor */
	if (!c->is_admin && !admin_is(c->uid) && text_bytes_of(c->server, c->uid) + bytes > USER_TEXT_BYTES)
		return error_set(err, -EDQUOT,
				 "user %u holds %u MiB of replies from dieseld, which is the maximum: close "
				 "connections, or use fewer of them",
				 c->uid, USER_TEXT_BYTES >> 20);
	r = shared_memory_new("diesel-text", bytes ? bytes : 1, SHARED_MAPPABLE, &c->text);
	if (r < 0)
		return error_errno(err, r, "no memory for dieseld's reply");
	memcpy(c->text.data, text, bytes);
	return 0;
}

static int reply_text(struct connection *c, const char *text)
{
	_cleanup_(closep) int fd = -EBADF;
	struct error err = ERROR_INIT;
	union wire_message answer;
	int r = text ? text_new(c, text, &err) : error_set(&err, -ENOMEM, "no memory for dieseld's reply");

	if (r == 0)
		r = shared_memory_reader(c->text.fd, &fd);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	protocol_init(&answer, WIRE_STATUS_REPLY);
	answer.status_reply.bytes = strlen(text);
	return connection_reply(c, &answer, &fd, 1);
}

static int connection_answer(struct connection *c, const union wire_message *m)
{
	struct control_viewer viewer =
	    c->is_admin ? (struct control_viewer){.uid = c->uid, .all = true} : control_viewer_of(c->uid);
	struct control *control = c->server->control;
	struct error err = ERROR_INIT;
	char *text = NULL;
	int r = 0;

	if (m->header.type == WIRE_WHY)
		r = control_why(control, &viewer, &m->why, &text, &err);
	else if (m->header.type == WIRE_SET)
		r = control_set(control, &viewer, &m->set, &text, &err);
	else
		text = m->header.type == WIRE_JOBS ? control_jobs(control, &viewer)
						   : server_status(c->server, &viewer);
	r = r < 0 ? connection_reply_error(c, &err, r) : reply_text(c, text);
	free(text);
	return r;
}

/* ---- chunks that the client reads for us (fetcher.h) ---- */

/* Drops the client's process that reads chunks for the daemon (fetcher.h). */

static void connection_drop_fetcher(struct connection *c)
{
	fetcher_end(c->fetcher);
	c->fetcher = NULL;
	c->server->serving.cache.slot_bytes -= c->landing_bytes;
	c->landing_bytes = 0;
}

/* Reserves cache space for the chunks that its fetcher reads. */
static int reserve_landing(struct connection *c, struct error *err)
{
	struct cache *cache = &c->server->serving.cache;
	int r;

	cache->slot_bytes += FETCHER_BYTES;
	c->landing_bytes = FETCHER_BYTES;
	r = server_check_usage(c->server, c, err);
	if (r == 0 && !cache_make_space(cache, 0))
		r = error_set(err, -ENOSPC,
			      "the cache has no space for reading %s (%llu MiB needed): start dieseld with a "
			      "larger --cache",
			      c->dataset->path, (unsigned long long)(FETCHER_BYTES >> 20));
	return r;
}

/* Records that, from now on, the client reads the open dataset's chunks for the daemon. Returns as
 * connection_reply(), or -EPROTO. */
static int connection_take_fetcher(struct connection *c)
{
	struct error err = ERROR_INIT;
	union wire_message answer;
	int fd, r;

	if (!c->dataset->identity.is_fetched || c->session || c->fetcher)
		return -EPROTO;
	r = reserve_landing(c, &err);
	if (r == 0) {
		r = fetcher_new(&c->dataset->fetchers, c->server->serving.cache.pool, c->fd, &c->fetcher);
		if (r < 0)
			error_errno(&err, r, "cannot read %s", c->dataset->path);
	}
	if (r < 0) {
		connection_drop_fetcher(c);
		return connection_reply_error(c, &err, r);
	}
	protocol_init(&answer, WIRE_FETCHER_REPLY);
	answer.fetcher_reply.bytes = FETCHER_BYTES;
	fd = fetcher_memory(c->fetcher);
	r = connection_reply(c, &answer, &fd, 1);
	/* Chunks that failed because there was no fetcher are tried again. */
	cached_forget_errors(c->dataset);
	serving_touch(&c->server->serving);
	return r;
}

static int connection_take_fetched(struct connection *c, const struct wire_fetched *m)
{
	return c->fetcher ? fetcher_answer(c->fetcher, m) : -EPROTO;
}

/* ---- queries of a codec's output: the codec answers in its own process (plugin.h), and nothing is read
 * from the client until then ---- */

static void connection_listen(struct connection *c);

static void on_answer(void *user, const struct plugin_answer *answer, const struct error *err)
{
	struct connection *c = user;
	union wire_message m;
	int r;

	c->asking = NULL;
	if (answer) {
		protocol_init(&m, WIRE_CODEC_REPLY);
		m.codec.type = answer->type;
		m.codec.codec = answer->codec;
		r = connection_reply(c, &m, NULL, 0);
	} else {
		r = connection_reply_error(c, err, err->code);
	}
	if (r < 0)
		connection_cut(c, r);
	else
		connection_listen(c);
}

/* Asks a codec for its output format. Returns as connection_reply(). */
static int connection_ask_codec(struct connection *c, const struct wire_codec *m)
{
	struct server *s = c->server;
	struct plugins *plugins = s->serving.options.plugins;
	const struct plugin_asker asker = {.loop = s->loop, .uid = c->uid, .answered = on_answer, .user = c};
	struct error err = ERROR_INIT;
	const struct plugin *plugin;
	int r = plugins_find(plugins, m->codec.name, &plugin, &err);

	if (r == 0)
		r = plugin_ask(plugins, &m->codec, &asker, &c->asking, &err);
	if (r < 0)
		return connection_reply_error(c, &err, r);
	connection_watch_end(c);
	return 0;
}

static void connection_ask_cancel(struct connection *c)
{
	if (c->asking)
		plugin_forget(c->asking);
	c->asking = NULL;
}

/* Space for replies that a client has not read, including the kernel's overhead for each: a dozen or two. */
#define UNREAD_BYTES 8192

int connection_reply(struct connection *c, union wire_message *message, const int *fds, size_t n_fds)
{
	int r;

	message->header.sequence = c->sequence;
	r = transport_send(c->fd, message, fds, n_fds);
	/* The kernel holds the few replies that UNREAD_BYTES allows; libdiesel never leaves more than one. */
	return r == -EAGAIN ? -ENOBUFS : r;
}

int connection_reply_error(struct connection *c, const struct error *err, int code)
{
	union wire_message m;

	protocol_init(&m, WIRE_ERROR);
	m.error.code = code;
	text_line(m.error.text, sizeof(m.error.text), err->text[0] ? err->text : strerror(-code));
	return connection_reply(c, &m, NULL, 0);
}

static int refuse(struct connection *c, int code, const char *text)
{
	struct error err = ERROR_INIT;

	error_set(&err, code, "%s", text);
	return connection_reply_error(c, &err, code);
}

static int on_hello(struct connection *c, const union wire_message *m)
{
	struct error err = ERROR_INIT;
	union wire_message answer;

	c->version = protocol_agree(&m->hello);
	if (!c->version) {
		bool is_newer = m->hello.version > WIRE_VERSION;

		error_set(
		    &err, -EPROTO,
		    "dieseld " DIESEL_VERSION
		    " speaks protocols %u to %u and the client %u%s: upgrade %s, or install one version "
		    "of both",
		    WIRE_VERSION_LEAST, WIRE_VERSION, m->hello.version,
		    m->hello.version == WIRE_VERSION ? " of another build" : "",
		    is_newer ? "dieseld (apt install diesel)"
			     : "the client (pip install --upgrade diesel-loader)");
		return connection_reply_error(c, &err, -EPROTO);
	}
	c->greeted = true;
	connection_expect(c, 0);
	protocol_init(&answer, WIRE_HELLO_REPLY);
	answer.hello.magic = WIRE_MAGIC;
	answer.hello.version = c->version;
	answer.hello.least = c->version;
	answer.hello.revision = c->version == WIRE_VERSION ? WIRE_REVISION : 0;
	return connection_reply(c, &answer, NULL, 0);
}

static int refuse_session(struct connection *c, const struct error *err, int code)
{
	log_limited(server_lines_of(c->server, c->uid), LOG_LEVEL_WARNING, "pid %lld: %s", (long long)c->pid,
		    err->text);
	return connection_reply_error(c, err, code);
}

static void on_owner_dead(uv_poll_t *poll, int status, int events)
{
	connection_close(poll->data);
}

/* Makes the session end with the process that opened it, even if other processes have the socket. */
static int watch_owner(struct connection *c)
{
	int fd = peer_process(c->fd);

	if (fd == -ESRCH)
		return fd;
	if (fd < 0) /* no pidfd: only the end of the socket ends the session and releases its batches */
		return 0;
	if (uv_poll_init(c->server->loop, &c->owner, fd) < 0) {
		close(fd);
		return -ENOMEM;
	}
	c->owner_fd = fd;
	c->owner.data = c;
	c->n_handles++;
	uv_poll_start(&c->owner, UV_READABLE, on_owner_dead);
	return 0;
}

static void end_session(struct connection *c)
{
	session_close(c->session);
	c->session = NULL;
}

/* Callback for session_args.may_take: user is the connection. */
static int server_may_take(void *user, uint64_t bytes, struct error *err)
{
	struct connection *c = user;
	struct cache *cache = &c->server->serving.cache;
	int r;

	c->batch_bytes = bytes;
	r = server_check_usage(c->server, c, err);
	cache->slot_bytes += bytes;
	if (r == 0)
		(void)cache_make_space(cache, 0); /* the caller that opens the session checks again */
	cache->slot_bytes -= bytes;
	c->batch_bytes = 0;
	return r;
}

static int open_session(struct connection *c, const struct wire_open_session *m, struct subset *subset)
{
	const struct session_args args = {.serving = &c->server->serving,
					  .dataset = c->dataset,
					  .place = c->place,
					  .pid = c->pid,
					  .uid = c->uid,
					  .payer = c->payer,
					  .request = m,
					  .origin = &c->origin,
					  .field = c->field,
					  .subset = subset,
					  .may_take = server_may_take,
					  .user = c};
	struct error err = ERROR_INIT;
	union wire_message answer;
	_cleanup_(closep) int batch_buffers_fd = -EBADF;
	int r;

	protocol_init(&answer, WIRE_SESSION_REPLY);
	r = session_open(&args, &c->session, &answer.session_reply, &err);
	if (r < 0)
		return refuse_session(c, &err, r);
	r = c->owner_fd < 0 ? watch_owner(c) : 0;
	if (r == 0)
		r = shared_memory_reader(c->session->slots.buffers->memory.fd, &batch_buffers_fd);
	if (r < 0) {
		end_session(c);
		return refuse(
		    c, r,
		    "dieseld cannot open the client's process or its memory: check that /proc is mounted");
	}
	return connection_reply(c, &answer, (int[]){c->session->slots.memory.fd, batch_buffers_fd}, 2);
}

static int on_open_session(struct connection *c, const struct wire_open_session *m)
{
	struct subset *subset = NULL;
	int r;

	if (c->session)
		return refuse(c, -EBUSY, "this connection already has a session");
	if (c->fetcher)
		return -EPROTO;
	if (c->dataset->identity.is_fetched && !c->dataset->fetchers.first) /* libdiesel waits for a reader,
									     * too */
		return refuse(c, -ECONNREFUSED,
			      "no process reads this dataset's bucket for dieseld: start `dieselctl fetch`");
	if (c->server->stopping) /* libdiesel waits for the next daemon */
		return refuse(c, -ECONNREFUSED, "this dieseld is stopping");
	r = m->subset_samples ? connection_steal_subset(c, m->subset_samples, &subset) : 0;
	return r < 0 ? r : open_session(c, m, subset);
}

static int on_segment(struct connection *c, const union wire_message *m)
{
	struct segment *segment = cache_find_segment(&c->server->serving.cache, m->segment.segment);
	union wire_message answer;
	_cleanup_(closep) int fd = -EBADF;
	int r;

	/* Sends only chunks of the dataset that this client has proved it may read, and only verified
	 * ones. */
	if (!segment || segment->dataset != c->dataset || !cache_is_mappable(segment))
		return refuse(c, -ENOENT, "no such chunk segment");
	r = shared_memory_reader(segment->memory.fd, &fd);
	if (r < 0)
		return refuse(
		    c, r,
		    "dieseld cannot share a chunk in memory with a client: check that /proc is mounted");
	segment->mapped = true;
	protocol_init(&answer, WIRE_SEGMENT_REPLY);
	answer.segment.segment = segment->id;
	answer.segment.bytes = segment->memory.bytes;
	return connection_reply(c, &answer, &fd, 1);
}

static int on_residents(struct connection *c)
{
	_cleanup_(closep) int table_fd = -EBADF, uses_fd = -EBADF;
	union wire_message answer;
	int r;

	if (c->version < 8 || c->uses)
		return -EPROTO;
	r = residents_lend(c->dataset, &c->uses, &table_fd, &uses_fd);
	if (r < 0)
		return refuse(c, r,
			      "dieseld cannot share the table of its chunks with a client: check that /proc "
			      "is mounted");
	protocol_init(&answer, WIRE_RESIDENTS_REPLY);
	answer.residents_reply.n_chunks = c->dataset->info.n_chunks;
	return connection_reply(c, &answer, (int[]){table_fd, uses_fd}, 2);
}

static int on_seek(struct connection *c, const union wire_message *m)
{
	union wire_message answer;

	protocol_init(&answer, WIRE_SEEK_REPLY);
	answer.seek_reply.generation = session_seek(c->session, m->seek.epoch, m->seek.batch);
	serving_touch(&c->server->serving);
	return connection_reply(c, &answer, NULL, 0);
}

static int on_ask(struct connection *c, const union wire_message *m)
{
	int r = c->session ? order_ask(&c->session->order, &m->ask) : -EPROTO;

	serving_touch(&c->server->serving);
	return r;
}

static int on_origin(struct connection *c, const union wire_message *m)
{
	union wire_message answer;

	if (c->version < 8)
		return -EPROTO;
	c->origin = m->origin;
	protocol_init(&answer, WIRE_ORIGIN_REPLY);
	return connection_reply(c, &answer, NULL, 0);
}

static int on_field(struct connection *c, const union wire_message *m)
{
	union wire_message answer;

	if (c->version < 8)
		return -EPROTO;
	memcpy(c->field, m->field.name, sizeof(c->field));
	protocol_init(&answer, WIRE_FIELD_REPLY);
	return connection_reply(c, &answer, NULL, 0);
}

static int on_stop(struct connection *c)
{
	union wire_message answer;

	session_stop(c->session);
	protocol_init(&answer, WIRE_STOP_REPLY);
	return connection_reply(c, &answer, NULL, 0);
}

static int on_message(struct connection *c, const union wire_message *m)
{
	enum wire_type type = (enum wire_type)m->header.type;

	c->sequence = m->header.sequence;
	if (!c->greeted && type != WIRE_HELLO)
		return -EPROTO;
	if ((type == WIRE_OPEN_SESSION || type == WIRE_SEGMENT || type == WIRE_SUBSET ||
	     type == WIRE_FETCHER || type == WIRE_RESIDENTS) &&
	    !c->dataset)
		return refuse(c, -EPROTO, "no dataset is open");
	if ((type == WIRE_SEEK || type == WIRE_STOP) && !c->session)
		return refuse(c, -EPROTO, "no session is open");
	if (type == WIRE_SEEK && c->session->order.asked)
		return refuse(c, -EPROTO, "cannot seek: the client chooses the samples of this session");
	switch (type) {
	case WIRE_HELLO: return on_hello(c, m);
	case WIRE_OPEN_DATASET:
		if (c->dataset)
			return -EPROTO;
		if (c->server->serving.options.observe)
			return refuse(c, -ECONNREFUSED,
				      "dieseld only observes this node and serves no jobs: ask its operator, "
				      "or unset DIESEL_SOCKET to use a dieseld of your own");
		return connection_open_dataset(c, &m->open_dataset);
	case WIRE_SUBSET:
		if (c->session)
			return refuse(c, -EBUSY, "this connection already has a session");
		return connection_take_part(c, &m->subset);
	case WIRE_ORIGIN: return on_origin(c, m);
	case WIRE_FIELD: return on_field(c, m);
	case WIRE_FETCHER: return connection_take_fetcher(c);
	case WIRE_FETCHED: return connection_take_fetched(c, &m->fetched);
	case WIRE_CODEC: return connection_ask_codec(c, &m->codec);
	case WIRE_OPEN_SESSION: return on_open_session(c, &m->open_session);
	case WIRE_ASK: return on_ask(c, m);
	case WIRE_SEEK: return on_seek(c, m);
	case WIRE_SEGMENT: return on_segment(c, m);
	case WIRE_RESIDENTS: return on_residents(c);
	case WIRE_STOP: return on_stop(c);
	case WIRE_KICK: serving_touch(&c->server->serving); return 0;
	case WIRE_STATUS:
	case WIRE_JOBS:
	case WIRE_WHY:
	case WIRE_SET: return connection_answer(c, m);
	case WIRE_ERROR:
	case WIRE_HELLO_REPLY:
	case WIRE_DATASET_REPLY:
	case WIRE_SUBSET_REPLY:
	case WIRE_ORIGIN_REPLY:
	case WIRE_FIELD_REPLY:
	case WIRE_CODEC_REPLY:
	case WIRE_SESSION_REPLY:
	case WIRE_SEEK_REPLY:
	case WIRE_SEGMENT_REPLY:
	case WIRE_RESIDENTS_REPLY:
	case WIRE_STOP_REPLY:
	case WIRE_STATUS_REPLY:
	case WIRE_FETCHER_REPLY:
	case WIRE_FETCH:
	case WIRE_N_TYPES: break;
	}
	return -EPROTO;
}

/* Keeps a connection whose socket has ended. The connection now ends when the client's process exits or
 * releases its last batch. */
static void orphan(struct connection *c)
{
	c->orphaned = true;
	uv_poll_stop(&c->poll);
	shutdown(c->fd, SHUT_RDWR);
	server_watch_orphans(c->server);
}

/* Logs the orphaned connection once. Not called at once, because a process that is ending closes its sockets
 * first. */
static void tell_orphan(struct connection *c)
{
	if (!c->orphan_told)
		log_limited(
		    server_lines_of(c->server, c->uid), LOG_LEVEL_INFO,
		    "pid %lld closed its connection but still holds batches: dieseld keeps them until "
		    "the process releases them",
		    (long long)c->pid);
	c->orphan_told = true;
}

bool connection_close_orphans(struct server *s)
{
	bool any = false;

	for (struct connection *c = s->connections, *next; c; c = next) {
		next = c->next;
		if (!c->orphaned)
			continue;
		if (session_orphan(c->session) == 0) {
			connection_close(c);
			continue;
		}
		any = true;
		tell_orphan(c);
	}
	return any;
}

void connection_cut(struct connection *c, int r)
{
	if (r != -ECONNRESET && r != -EPIPE)
		log_limited(server_lines_of(c->server, c->uid), LOG_LEVEL_WARNING,
			    "closed the connection of pid %lld: %s", (long long)c->pid,
			    r == -EPROTO      ? "the client violated the protocol"
			    : r == -ENOBUFS   ? "the client does not read its replies"
			    : r == -ETIMEDOUT ? "the client sent no complete request in time"
					      : strerror(-r));
	if (c->session && c->owner_fd >= 0 && session_orphan(c->session) > 0)
		orphan(c);
	else
		connection_close(c);
}

/* Reads the next message. This process never takes a client's descriptor: the only message that has some
 * stays in the socket for the process that opens the dataset. If it arrives at the wrong time, the
 * connection ends, and its socket closes the descriptors (closer.h). */
static int next_message(struct connection *c, union wire_message *m)
{
	int r = transport_peek(c->fd, m);

	if (r == 0 && m->header.type != WIRE_OPEN_DATASET)
		transport_drop(c->fd);
	return r;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct connection *c = poll->data;
	int r = 0;

	/* Handles a bounded number of messages, so that one busy client does not keep the others waiting. */
	for (int i = 0; i < 16 && r == 0 && !c->opening && !c->asking; i++) {
		union wire_message m;

		r = next_message(c, &m);
		if (r == 0)
			r = on_message(c, &m);
	}
	if (r == 0 || r == -EAGAIN)
		return;
	connection_cut(c, r);
}

static void connection_listen(struct connection *c)
{
	uv_poll_start(&c->poll, UV_READABLE, on_readable);
}

static void on_end(uv_poll_t *poll, int status, int events)
{
	connection_close(poll->data);
}

void connection_watch_end(struct connection *c)
{
	uv_poll_start(&c->poll, UV_DISCONNECT, on_end);
}

int connection_new(struct server *server, int fd, const struct ucred *peer)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){UNREAD_BYTES}, sizeof(int));
	c->server = server;
	c->text = SHARED_MEMORY_INIT;
	c->fd = fd;
	c->owner_fd = -EBADF;
	c->n_handles = 1;
	c->pid = peer->pid;
	c->uid = peer->uid;
	c->payer = cache_quotas_payer_of(&server->serving.cache.quotas, fd, peer->uid);
	if (uv_poll_init(server->loop, &c->poll, fd) < 0) {
		free(c);
		return -ENOMEM;
	}
	c->poll.data = c;
	c->next = server->connections;
	server->connections = c;
	server->n_connections++;
	connection_listen(c);
	connection_expect(c, CONNECTION_HELLO_MS);
	return 0;
}

static void connection_free(struct connection *c)
{
	/* When the daemon stops, a client may still be reading earlier replies. */
	if (c->server->stopping)
		shared_memory_free(&c->text);
	else
		shared_memory_discard(&c->text);
	if (--c->server->n_connections == 0)
		c->server->left_ns = clock_monotonic_ns();
	free(c);
}

static void on_closed(uv_handle_t *handle)
{
	struct connection *c = handle->data;

	if (handle == (uv_handle_t *)&c->poll)
		closer_close(&c->server->closer, c->fd);
	else
		closep(&c->owner_fd);
	if (--c->n_handles == 0 && !c->opening)
		connection_free(c);
}

void connection_opened(struct connection *c)
{
	if (c->n_handles == 0)
		connection_free(c);
	else if (!c->closed)
		connection_listen(c);
}

void connection_close(struct connection *c)
{
	struct server *s = c->server;

	if (c->closed)
		return;
	c->closed = true;
	LL_DELETE(s->connections, c);
	end_session(c);
	connection_drop_fetcher(c);
	connection_drop_subset(c);
	connection_open_cancel(c);
	connection_ask_cancel(c);
	c->place = place_unref(c->place);
	if (c->dataset) {
		residents_take_back(c->dataset, c->uses);
		c->dataset->refs--;
	}
	uv_close((uv_handle_t *)&c->poll, on_closed);
	if (c->owner_fd >= 0)
		uv_close((uv_handle_t *)&c->owner, on_closed);
	serving_touch(&s->serving);
}
