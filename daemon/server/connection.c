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
#include "daemon/sandboxed/opener.h"
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
#include "lib/units.h"
#include "server.h"

/* Timeouts: from the connection to its HELLO; from one part of a subset to the next one, or to the session.
 */
#define HELLO_MS  10000
#define SUBSET_MS 60000
#define ORPHAN_MS 200 /* interval between checks whether orphaned clients have released their batches */

/* Space for replies that a client has not read, including the kernel's overhead for each: a dozen or two. */
#define UNREAD_BYTES 8192

/* Answers the last request. Returns 0, or a negative errno: call cut() then. -ENOBUFS: the client does not
 * read. */
static int reply(struct connection *c, union wire_message *message, const int *fds, size_t n_fds)
{
	int r;

	message->header.sequence = c->sequence;
	r = transport_send(c->fd, message, fds, n_fds);
	/* The kernel holds the few replies that UNREAD_BYTES allows; libdiesel never leaves more than one. */
	return r == -EAGAIN ? -ENOBUFS : r;
}

static int reply_error(struct connection *c, const struct error *err, int code)
{
	union wire_message m;

	protocol_init(&m, WIRE_ERROR);
	m.error.code = code;
	text_line(m.error.text, sizeof(m.error.text), err->text[0] ? err->text : strerror(-code));
	return reply(c, &m, NULL, 0);
}

static int refuse(struct connection *c, int code, const char *text)
{
	struct error err = ERROR_INIT;

	error_set(&err, code, "%s", text);
	return reply_error(c, &err, code);
}

static int reply_empty(struct connection *c, enum wire_type type)
{
	union wire_message m;

	protocol_init(&m, type);
	return reply(c, &m, NULL, 0);
}

/* Ends the connection, and logs the reason if it matters. Batches that the client's process holds stay until
 * it releases them or exits. */
static void cut(struct connection *c, int r);
static void listen_again(struct connection *c);
/* Reads nothing more, but notices when the client leaves. */
static void watch_end(struct connection *c);

/* ---- clients that owe a message ---- */

#define DEADLINE_CHECK_MS 1000

/* Sends the client the reason, in case it still reads, and ends the connection. */
static void give_up(struct connection *c)
{
	struct error err = ERROR_INIT;

	error_set(&err, -ETIMEDOUT,
		  c->greeted ? "the rest of the subset did not arrive within %d s"
			     : "no HELLO message arrived within %d s",
		  (c->greeted ? SUBSET_MS : HELLO_MS) / 1000);
	(void)reply_error(c, &err, -ETIMEDOUT);
	cut(c, -ETIMEDOUT);
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
static void expect(struct connection *c, uint32_t ms)
{
	struct server *s = c->server;

	c->overdue = false;
	c->due_ns = ms ? clock_monotonic_ns() + ms * NS_PER_MS : 0;
	if (ms && !uv_is_active((uv_handle_t *)&s->silence))
		uv_timer_start(&s->silence, on_deadline_check, DEADLINE_CHECK_MS, DEADLINE_CHECK_MS);
}

/* ---- subset of the next session ---- */

/* Frees the parts of a subset that were sent, and their reservation in the cache. */
static void drop_subset(struct connection *c)
{
	free(c->subset_words);
	c->subset_words = NULL;
	c->server->serving.cache.slot_bytes -= c->subset_bytes;
	c->subset_bytes = 0;
	expect(c, 0);
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
		drop_subset(c);
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

static int on_subset(struct connection *c, const union wire_message *message)
{
	const struct wire_subset *m = &message->subset;
	uint64_t n_words = subset_words(c->dataset->info.n_samples), first, n;
	struct error err = ERROR_INIT;
	int r = 0;

	if (c->session)
		return refuse(c, -EBUSY, "this connection already has a session");
	if (m->part >= (n_words + WIRE_SUBSET_WORDS - 1) / WIRE_SUBSET_WORDS)
		return -EPROTO;
	first = m->part * WIRE_SUBSET_WORDS;
	n = n_words - first < WIRE_SUBSET_WORDS ? n_words - first : WIRE_SUBSET_WORDS;
	if (!is_zero(m->words + n, WIRE_SUBSET_WORDS - n))
		return -EPROTO;
	if (!c->subset_words)
		r = reserve(c, &err);
	if (r < 0)
		return reply_error(c, &err, r);
	memcpy(c->subset_words + first, m->words, n * sizeof(*m->words));
	expect(c, SUBSET_MS);
	return reply_empty(c, WIRE_SUBSET_REPLY);
}

/* Moves the subset that was sent to *ret, for a session that chooses n_chosen samples. -EPROTO: none was
 * sent, or its number of samples differs; -ENOMEM. */
static int steal_subset(struct connection *c, uint64_t n_chosen, struct subset **ret)
{
	uint64_t *words = c->subset_words;
	struct subset *subset;
	int r;

	if (!words)
		return -EPROTO;
	c->subset_words = NULL;
	drop_subset(c); /* the session counts the subset from now on */
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
		return reply_error(c, &err, r);
	protocol_init(&answer, WIRE_STATUS_REPLY);
	answer.status_reply.bytes = strlen(text);
	return reply(c, &answer, &fd, 1);
}

static int on_query(struct connection *c, const union wire_message *m)
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
	r = r < 0 ? reply_error(c, &err, r) : reply_text(c, text);
	free(text);
	return r;
}

/* ---- chunks that the client reads for us (fetcher.h) ---- */

static void drop_fetcher(struct connection *c)
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
 * reply(), or -EPROTO. */
static int on_fetcher(struct connection *c, const union wire_message *m)
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
		drop_fetcher(c);
		return reply_error(c, &err, r);
	}
	protocol_init(&answer, WIRE_FETCHER_REPLY);
	answer.fetcher_reply.bytes = FETCHER_BYTES;
	fd = fetcher_memory(c->fetcher);
	r = reply(c, &answer, &fd, 1);
	/* Chunks that failed because there was no fetcher are tried again. */
	cached_forget_errors(c->dataset);
	serving_touch(&c->server->serving);
	return r;
}

static int on_fetched(struct connection *c, const union wire_message *m)
{
	return c->fetcher ? fetcher_answer(c->fetcher, &m->fetched) : -EPROTO;
}

/* ---- queries of a codec's output: the codec answers in its own process (plugin.h), and nothing is read
 * from the client until then ---- */

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
		r = reply(c, &m, NULL, 0);
	} else {
		r = reply_error(c, err, err->code);
	}
	if (r < 0)
		cut(c, r);
	else
		listen_again(c);
}

/* Asks a codec for its output format. Returns as reply(). */
static int on_codec(struct connection *c, const union wire_message *m)
{
	struct server *s = c->server;
	struct plugins *plugins = s->serving.options.plugins;
	const struct plugin_asker asker = {.loop = s->loop, .uid = c->uid, .answered = on_answer, .user = c};
	struct error err = ERROR_INIT;
	const struct plugin *plugin;
	int r = plugins_find(plugins, m->codec.codec.name, &plugin, &err);

	if (r == 0)
		r = plugin_ask(plugins, &m->codec.codec, &asker, &c->asking, &err);
	if (r < 0)
		return reply_error(c, &err, r);
	watch_end(c);
	return 0;
}

static void ask_cancel(struct connection *c)
{
	if (c->asking)
		plugin_forget(c->asking);
	c->asking = NULL;
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

/* Continues when the request to open a dataset has been answered. */
static void opened(struct connection *c)
{
	if (c->n_handles == 0)
		connection_free(c);
	else if (!c->closed)
		listen_again(c);
}

/*
 * ---- opening a dataset ----
 *
 * A process of its own (opener.h) finds out which one it is. If it is not served yet, and no other request is
 * loading it, that process copies and verifies the snapshot, and a worker makes the tables for it. If the
 * client leaves, its process is killed. The request stays in the socket until then, because that process
 * takes its descriptor.
 */

enum open_stage {
	OPEN_ASKS,  /* a helper process finds out which dataset it is */
	OPEN_WAITS, /* waits for another request that loads the same dataset */
	OPEN_LOADS,
	OPEN_ADOPTS, /* a worker makes the dataset's tables */
};

struct open_request {
	struct pool_task task;
	struct pool_lane lane; /* lane of the request's user */
	struct connection *connection;
	struct opening *opening; /* NULL: the helper process is done */
	enum open_stage stage;
	uint64_t version;
	bool is_fetched;
	struct proof proof;
	uint64_t reserved_bytes; /* cache space reserved for the copy */
	int copy_fd;
	struct cached_dataset *loaded;
	int result;
	struct error error;
};

static int answer_open(struct open_request *q, struct cached_dataset *d)
{
	struct connection *c = q->connection;
	_cleanup_(closep) int fd = -EBADF;
	union wire_message m;
	int r;

	if (q->version && q->version != d->info.version) {
		error_set(
		    &q->error, -ESTALE,
		    "%s is at version %llu now, but the session was opened at %llu: open the dataset again",
		    d->path, (unsigned long long)d->info.version, (unsigned long long)q->version);
		return reply_error(c, &q->error, -ESTALE);
	}
	r = shared_memory_reader(d->copy.fd, &fd);
	if (r < 0) {
		error_errno(&q->error, r, "dieseld cannot share a snapshot in memory with a client");
		return reply_error(c, &q->error, r);
	}
	c->place = cached_add_place(d, &q->proof);
	if (!c->place) {
		error_errno(&q->error, -ENOMEM, "cannot open %s", d->path);
		return reply_error(c, &q->error, -ENOMEM);
	}
	if (d->refs == 0)
		cached_forget_errors(d);
	d->payers.open = (d->refs > 0 ? d->payers.open : 0) | 1u << c->payer;
	d->refs++;
	c->dataset = d;
	protocol_init(&m, WIRE_DATASET_REPLY);
	m.dataset_reply.version = d->info.version;
	m.dataset_reply.snapshot_bytes = d->copy.bytes;
	d->copy.is_borrowed = true;
	d->copy.uid = c->uid;
	handover_note_user(c->server->serving.cache.handover, d);
	return reply(c, &m, &fd, 1);
}

uint64_t connection_opening_bytes(const struct connection *c)
{
	return c->opening ? c->opening->reserved_bytes : 0;
}

uint64_t connection_reserved_bytes(const struct connection *c)
{
	return c->subset_bytes + c->landing_bytes + c->batch_bytes + connection_opening_bytes(c);
}

static void unreserve(struct open_request *q)
{
	q->connection->server->serving.cache.snapshot_bytes -= q->reserved_bytes;
	q->reserved_bytes = 0;
}

static void request_free(struct open_request *q)
{
	if (q->opening)
		opening_end(q->opening);
	unreserve(q);
	proof_close(&q->proof);
	closep(&q->copy_fd);
	free(q);
}

/* A process that died may have left the request in the socket. Then nothing more can be read from there. */
static bool is_untaken(const struct connection *c)
{
	union wire_message m;

	return transport_peek(c->fd, &m) == 0 && m.header.type == WIRE_OPEN_DATASET &&
	       m.header.sequence == c->sequence;
}

/* Refuses a dataset without digests if this user may not have one. */
static int check_digest(struct open_request *q, const struct cached_dataset *d)
{
	const struct connection *c = q->connection;
	enum serving_digest when = c->server->serving.options.require_digest;

	if (d->info.has_digests || when == SERVING_DIGEST_NEVER ||
	    (when == SERVING_DIGEST_SHARED && c->uid == d->identity.rights.uid))
		return 0;
	return error_set(&q->error, -EPERM,
			 "%s has no SHA-256 of its chunks, and dieseld requires it%s (--require-digest): its "
			 "owner can run `dieselctl rebuild --digest " DIGEST_NAME " %s`",
			 d->path, when == SERVING_DIGEST_SHARED ? " for all but the owner" : "", d->path);
}

static void finish_open(struct open_request *q, struct cached_dataset *d)
{
	struct connection *c = q->connection;
	/* Checked before answering: after the answer, the client's next request would be mistaken for this
	 * one. */
	bool untaken = !c->closed && q->stage == OPEN_ASKS && !d && is_untaken(c);
	int r = 0;

	if (d && (q->result = check_digest(q, d)) < 0)
		d = NULL;
	if (!c->closed)
		r = d ? answer_open(q, d) : reply_error(c, &q->error, q->result);
	if (r == 0 && untaken)
		r = -ECONNRESET;
	if (!d && q->error.text[0])
		log_limited(server_lines_of(c->server, c->uid), LOG_LEVEL_WARNING, "pid %lld: %s",
			    (long long)c->pid, q->error.text);
	c->opening = NULL;
	request_free(q);
	if (r < 0)
		cut(c, r);
	opened(c);
}

static struct open_request *find_stage(const struct server *s, const struct proof_identity *identity,
				       bool waiting)
{
	for (const struct connection *c = s->connections; c; c = c->next) {
		struct open_request *q = c->opening;

		if (q &&
		    (waiting ? q->stage == OPEN_WAITS : q->stage == OPEN_LOADS || q->stage == OPEN_ADOPTS) &&
		    proof_identity_equal(&q->proof.identity, identity))
			return q;
	}
	return NULL;
}

/* Reserves space for the copy before it is made. */
static int reserve_copy(struct open_request *q)
{
	struct cache *cache = &q->connection->server->serving.cache;
	uint64_t bytes = q->proof.snapshot_bytes, most = cache->limit_bytes / 2;
	int r;

	if (bytes > most)
		return error_set(&q->error, -ENOSPC,
				 "%s/" SNAPSHOT_FILE " needs %llu MiB of memory, but the cache has space for "
				 "%llu MiB: start dieseld with a larger --cache",
				 q->proof.path, (unsigned long long)(bytes >> 20),
				 (unsigned long long)(most >> 20));
	/* If this fails, request_free() gives the bytes back. */
	cache->snapshot_bytes += bytes;
	q->reserved_bytes = bytes;
	r = server_check_usage(q->connection->server, q->connection, &q->error);
	if (r == 0 && !cache_make_space(cache, 0))
		r = error_set(&q->error, -ENOSPC,
			      "the snapshot of %s does not fit in the cache in addition to the memory in "
			      "use: start dieseld with a larger --cache",
			      q->proof.path);
	return r;
}

/* Answers at once if the dataset is served already, waits if it is being loaded, and else loads it. */
static void decide(struct open_request *q)
{
	struct server *s = q->connection->server;
	struct cached_dataset *d = cache_find_dataset(&s->serving.cache, &q->proof.identity);

	if (d && !cached_is_still(d, &q->proof)) {
		/* The dataset was restored after a restart, and its file has been replaced since. */
		if (!q->proof.replaced)
			cache_drop_dataset(&s->serving.cache, d);
		d = NULL;
	}
	if (d) {
		finish_open(q, d);
		return;
	}
	if (q->proof.replaced) {
		q->result = error_set(&q->error, -ESTALE,
				      "the dataset's snapshot was replaced by a newer one and was not "
				      "retained: open the dataset again");
		finish_open(q, NULL);
		return;
	}
	q->stage = OPEN_WAITS;
	if (find_stage(s, &q->proof.identity, false))
		return;
	q->result = reserve_copy(q);
	if (q->result < 0) {
		finish_open(q, NULL);
		return;
	}
	q->stage = OPEN_LOADS;
	opening_go_on(q->opening);
	readers_prepare(&s->serving.cache.readers); /* starts readers in the meantime */
}

/* Decides again about the requests that waited for a load, which has ended, successfully or not. */
static void wake_waiting(struct server *s, const struct proof_identity *identity)
{
	struct open_request *q;

	while (!find_stage(s, identity, false) && (q = find_stage(s, identity, true)))
		decide(q);
}

static void adopt_work(struct pool_task *task)
{
	struct open_request *q = (struct open_request *)task;

	q->result = cached_new(&q->proof, q->copy_fd, &q->loaded, &q->error);
	q->copy_fd = -EBADF;
}

static void adopt_done(struct pool_task *task)
{
	struct open_request *q = (struct open_request *)task;
	struct server *s = q->connection->server;
	struct proof_identity identity = q->proof.identity;
	struct cached_dataset *d = cache_find_dataset(&s->serving.cache, &identity);

	unreserve(q);
	if (d) { /* this request's client had left, and another request loaded the dataset in the meantime */
		cached_free(q->loaded);
	} else if (q->result == 0) {
		d = q->loaded;
		cache_add_dataset(&s->serving.cache, d);
		log_info("serving %s, version %llu: %llu sample%s in %llu chunk%s", d->path,
			 (unsigned long long)d->info.version, (unsigned long long)d->info.n_samples,
			 units_plural(d->info.n_samples), (unsigned long long)d->info.n_chunks,
			 units_plural(d->info.n_chunks));
	}
	finish_open(q, d);
	wake_waiting(s, &identity);
}

static void on_identified(void *user, struct proof *proof)
{
	struct open_request *q = user;

	q->proof = *proof;
	proof->chunks_fd = proof->snapshot_fd = -EBADF;
	q->proof.identity.is_fetched = q->is_fetched;
	/* Only the same user may get chunks that a client's own processes deliver. */
	if (q->is_fetched && q->proof.identity.rights.uid != q->connection->uid) {
		q->result = error_set(&q->error, -EPERM,
				      "%s belongs to another user: each user of a dataset in a bucket needs "
				      "a separate snapshot",
				      q->proof.path);
		finish_open(q, NULL);
		return;
	}
	decide(q);
}

static void on_verified(void *user, int copy_fd)
{
	struct open_request *q = user;

	q->opening = NULL;
	q->copy_fd = copy_fd;
	q->stage = OPEN_ADOPTS;
	q->task = (struct pool_task){.work = adopt_work, .done = adopt_done};
	pool_lane_init(&q->lane, q->connection->uid);
	pool_submit(q->connection->server->serving.cache.pool, &q->lane, &q->task);
}

static void on_failed(void *user, const struct error *err)
{
	struct open_request *q = user;
	struct server *s = q->connection->server;
	struct proof_identity identity = q->proof.identity;

	q->opening = NULL;
	q->error = *err;
	q->result = err->code;
	finish_open(q, NULL);
	wake_waiting(s, &identity);
}

static void cancel_open(struct connection *c)
{
	struct open_request *q = c->opening;
	struct proof_identity identity;

	if (!q || q->stage == OPEN_ADOPTS) /* adopt_done() still runs, and keeps the dataset for others */
		return;
	identity = q->proof.identity;
	c->opening = NULL;
	request_free(q);
	wake_waiting(c->server, &identity);
}

static int on_open_dataset(struct connection *c, const union wire_message *m)
{
	static const struct opening_handler handler = {
	    .identified = on_identified, .verified = on_verified, .failed = on_failed};
	struct open_request *q;
	int r;

	if (c->dataset)
		return -EPROTO;
	if (c->server->serving.options.observe)
		return refuse(
		    c, -ECONNREFUSED,
		    "dieseld only observes this node and serves no jobs: ask its operator, or unset "
		    "DIESEL_SOCKET to use a dieseld of your own");
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->connection = c;
	q->version = m->open_dataset.version;
	q->is_fetched = m->open_dataset.flags & WIRE_DATASET_FETCHED;
	q->proof = PROOF_INIT;
	q->copy_fd = -EBADF;
	r = opening_start(c->server->opener, c->uid, c->fd, &handler, q, &q->opening);
	if (r < 0) {
		free(q);
		return r;
	}
	c->opening = q;
	watch_end(c);
	return 0;
}

/* ---- requests ---- */

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
		return reply_error(c, &err, -EPROTO);
	}
	c->greeted = true;
	expect(c, 0);
	protocol_init(&answer, WIRE_HELLO_REPLY);
	answer.hello.magic = WIRE_MAGIC;
	answer.hello.version = c->version;
	answer.hello.least = c->version;
	answer.hello.revision = c->version == WIRE_VERSION ? WIRE_REVISION : 0;
	return reply(c, &answer, NULL, 0);
}

static int refuse_session(struct connection *c, const struct error *err, int code)
{
	log_limited(server_lines_of(c->server, c->uid), LOG_LEVEL_WARNING, "pid %lld: %s", (long long)c->pid,
		    err->text);
	return reply_error(c, err, code);
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
	return reply(c, &answer, (int[]){c->session->slots.memory.fd, batch_buffers_fd}, 2);
}

static int on_open_session(struct connection *c, const union wire_message *message)
{
	const struct wire_open_session *m = &message->open_session;
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
	r = m->subset_samples ? steal_subset(c, m->subset_samples, &subset) : 0;
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
	return reply(c, &answer, &fd, 1);
}

static int on_residents(struct connection *c, const union wire_message *m)
{
	_cleanup_(closep) int table_fd = -EBADF, uses_fd = -EBADF;
	union wire_message answer;
	int r;

	if (c->uses)
		return -EPROTO;
	r = residents_lend(c->dataset, &c->uses, &table_fd, &uses_fd);
	if (r < 0)
		return refuse(c, r,
			      "dieseld cannot share the table of its chunks with a client: check that /proc "
			      "is mounted");
	protocol_init(&answer, WIRE_RESIDENTS_REPLY);
	answer.residents_reply.n_chunks = c->dataset->info.n_chunks;
	return reply(c, &answer, (int[]){table_fd, uses_fd}, 2);
}

static int on_seek(struct connection *c, const union wire_message *m)
{
	union wire_message answer;

	if (c->session->order.asked)
		return refuse(c, -EPROTO, "cannot seek: the client chooses the samples of this session");
	protocol_init(&answer, WIRE_SEEK_REPLY);
	answer.seek_reply.generation = session_seek(c->session, m->seek.epoch, m->seek.batch);
	serving_touch(&c->server->serving);
	return reply(c, &answer, NULL, 0);
}

static int on_ask(struct connection *c, const union wire_message *m)
{
	int r = c->session ? order_ask(&c->session->order, &m->ask) : -EPROTO;

	serving_touch(&c->server->serving);
	return r;
}

static int on_origin(struct connection *c, const union wire_message *m)
{
	c->origin = m->origin;
	return reply_empty(c, WIRE_ORIGIN_REPLY);
}

static int on_field(struct connection *c, const union wire_message *m)
{
	memcpy(c->field, m->field.name, sizeof(c->field));
	return reply_empty(c, WIRE_FIELD_REPLY);
}

static int on_stop(struct connection *c, const union wire_message *m)
{
	session_stop(c->session);
	return reply_empty(c, WIRE_STOP_REPLY);
}

static int on_kick(struct connection *c, const union wire_message *m)
{
	serving_touch(&c->server->serving);
	return 0;
}

/* The requests. A message of any other type violates the protocol. */
static const struct {
	int (*answer)(struct connection *c, const union wire_message *m); /* returns as reply(), or -EPROTO */
	bool needs_dataset, needs_session;
	uint32_t since; /* protocol version that introduced the request */
} requests[WIRE_N_TYPES] = {
    [WIRE_HELLO] = {.answer = on_hello},
    [WIRE_OPEN_DATASET] = {.answer = on_open_dataset},
    [WIRE_SUBSET] = {.answer = on_subset, .needs_dataset = true},
    [WIRE_ORIGIN] = {.answer = on_origin, .since = 8},
    [WIRE_FIELD] = {.answer = on_field, .since = 8},
    [WIRE_FETCHER] = {.answer = on_fetcher, .needs_dataset = true},
    [WIRE_FETCHED] = {.answer = on_fetched},
    [WIRE_CODEC] = {.answer = on_codec},
    [WIRE_OPEN_SESSION] = {.answer = on_open_session, .needs_dataset = true},
    [WIRE_ASK] = {.answer = on_ask},
    [WIRE_SEEK] = {.answer = on_seek, .needs_session = true},
    [WIRE_SEGMENT] = {.answer = on_segment, .needs_dataset = true},
    [WIRE_RESIDENTS] = {.answer = on_residents, .needs_dataset = true, .since = 8},
    [WIRE_STOP] = {.answer = on_stop, .needs_session = true},
    [WIRE_KICK] = {.answer = on_kick},
    [WIRE_STATUS] = {.answer = on_query},
    [WIRE_JOBS] = {.answer = on_query},
    [WIRE_WHY] = {.answer = on_query},
    [WIRE_SET] = {.answer = on_query},
};

static int on_message(struct connection *c, const union wire_message *m)
{
	uint32_t type = m->header.type;

	c->sequence = m->header.sequence;
	if (type >= WIRE_N_TYPES || !requests[type].answer || (!c->greeted && type != WIRE_HELLO))
		return -EPROTO;
	if (requests[type].needs_dataset && !c->dataset)
		return refuse(c, -EPROTO, "no dataset is open");
	if (requests[type].needs_session && !c->session)
		return refuse(c, -EPROTO, "no session is open");
	return c->version < requests[type].since ? -EPROTO : requests[type].answer(c, m);
}

/* ---- the end of a connection ---- */

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

/* Closes orphaned connections whose process has released everything. */
static void on_orphans(uv_timer_t *timer)
{
	struct server *s = timer->data;
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
	if (!any)
		uv_timer_stop(timer);
}

/* Keeps a connection whose socket has ended. The connection now ends when the client's process exits or
 * releases its last batch. */
static void orphan(struct connection *c)
{
	c->orphaned = true;
	uv_poll_stop(&c->poll);
	shutdown(c->fd, SHUT_RDWR);
	uv_timer_start(&c->server->orphans, on_orphans, ORPHAN_MS, ORPHAN_MS);
}

static void cut(struct connection *c, int r)
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
	cut(c, r);
}

static void listen_again(struct connection *c)
{
	uv_poll_start(&c->poll, UV_READABLE, on_readable);
}

static void on_end(uv_poll_t *poll, int status, int events)
{
	connection_close(poll->data);
}

static void watch_end(struct connection *c)
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
	listen_again(c);
	expect(c, HELLO_MS);
	return 0;
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

void connection_close(struct connection *c)
{
	struct server *s = c->server;

	if (c->closed)
		return;
	c->closed = true;
	LL_DELETE(s->connections, c);
	end_session(c);
	drop_fetcher(c);
	drop_subset(c);
	cancel_open(c);
	ask_cancel(c);
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
