/* SPDX-License-Identifier: Apache-2.0 */
/* Which messages a client other than libdiesel may send, and how the server reacts. */
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport.h"
#include "daemon/server/connection.h"
#include "dataset/subset.h"
#include "lib/cleanup.h"

static int greet_as(const struct node *node, uint32_t version)
{
	union wire_message m;
	struct wire_fds fds;
	int fd = connect_to(node->socket);

	protocol_init(&m, WIRE_HELLO);
	m.hello.magic = WIRE_MAGIC;
	m.hello.version = version;
	m.hello.revision = version == WIRE_VERSION ? WIRE_REVISION : 0;
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	assert_int_equal(transport_receive(fd, &m, &fds), 0);
	assert_int_equal(m.header.type, WIRE_HELLO_REPLY);
	assert_int_equal(m.hello.version, version);
	return fd;
}

static int greet(const struct node *node)
{
	return greet_as(node, WIRE_VERSION);
}

TEST_IN_FOLDER(a_client_that_reads_no_replies_is_cut_off)
{
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;
	uint32_t n_sent = 0, n_read = 0, n_errors = 0;
	int fd, r;

	node_start(&node, *state);
	fd = greet(&node);
	for (r = 0; r == 0 && n_sent < 20000; n_sent++) {
		protocol_init(&m, WIRE_SEGMENT);
		m.header.sequence = (uint16_t)(n_sent + 1);
		r = transport_send(fd, &m, NULL, 0);
	}
	assert_true(r == -EPIPE || r == -ECONNRESET);
	/* Earlier replies come in order, without a gap, and then the end. The kernel may first report that
	 * requests were left unread. */
	do {
		r = transport_receive(fd, &m, &fds);
		if (r == 0) {
			assert_int_equal(m.header.type, WIRE_ERROR);
			assert_int_equal(m.header.sequence, ++n_read);
		}
	} while (r == 0 || (n_read == 0 && n_errors++ == 0));
	assert_int_equal(r, -ECONNRESET);
	assert_in_range(n_read, 1, 64);
	close(fd);
	node_stop(&node);
}

/* Sends a request and receives the reply. */
static int ask(int fd, union wire_message *m, const int *fds, size_t n_fds, struct wire_fds *ret_fds)
{
	static uint16_t sequence;

	m->header.sequence = ++sequence;
	int r = transport_send(fd, m, fds, n_fds);
	if (r == 0)
		r = transport_receive(fd, m, ret_fds);
	if (r == 0)
		assert_int_equal(m->header.sequence, sequence);
	return r;
}

static void ask_plain(int fd, enum wire_type type, union wire_message *ret)
{
	struct wire_fds fds;

	protocol_init(ret, type);
	assert_int_equal(ask(fd, ret, NULL, 0, &fds), 0);
	wire_fds_close(&fds);
}

static void refused(const union wire_message *m, int code, const char *says)
{
	assert_int_equal(m->header.type, WIRE_ERROR);
	assert_int_equal(m->error.code, code);
	if (!strstr(m->error.text, says))
		fail_msg("\"%s\" does not say: %s", m->error.text, says);
}

/* Asserts that the connection is over, without another message. */
static void is_cut(int fd)
{
	union wire_message m;
	struct wire_fds fds;
	int r = transport_receive(fd, &m, &fds);

	assert_true(r == -ECONNRESET || r == -EPIPE);
	close(fd);
}

static void send_dataset(int fd, const char *path)
{
	int fds[2] = {open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	union wire_message m;

	fds[1] = openat(fds[0], SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC);
	protocol_init(&m, WIRE_OPEN_DATASET);
	m.header.sequence = 1;
	assert_int_equal(transport_send(fd, &m, fds, 2), 0);
	close(fds[0]);
	close(fds[1]);
}

static void open_dataset(int fd, const char *path, union wire_message *ret)
{
	struct wire_fds got;

	send_dataset(fd, path);
	assert_int_equal(transport_receive(fd, ret, &got), 0);
	wire_fds_close(&got);
}

/* Opens a session. Returns a descriptor of its control area, or -1. */
static int open_session(int fd, union wire_message *ret)
{
	struct wire_fds got;

	protocol_init(ret, WIRE_OPEN_SESSION);
	ret->open_session.world = ret->open_session.stride = 1;
	ret->open_session.batch = 2;
	assert_int_equal(ask(fd, ret, NULL, 0, &got), 0);
	int control = got.n > 0 ? dup(got.fd[0]) : -1;
	wire_fds_close(&got);
	return control;
}

TEST_IN_FOLDER(who_does_not_greet_is_cut_off)
{
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;

	node_start(&node, *state);
	int fd = connect_to(node.socket);
	protocol_init(&m, WIRE_STATUS);
	m.header.sequence = 1;
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	is_cut(fd);
	/* A client of another version gets an error message, and may try again. */
	fd = connect_to(node.socket);
	protocol_init(&m, WIRE_HELLO);
	m.hello.magic = WIRE_MAGIC;
	m.hello.version = WIRE_VERSION + 1;
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	assert_int_equal(transport_receive(fd, &m, &fds), 0);
	refused(&m, -EPROTO, "upgrade dieseld");
	refused(&m, -EPROTO, "install one version of both");
	protocol_init(&m, WIRE_HELLO);
	m.hello.magic = WIRE_MAGIC;
	m.hello.version = WIRE_VERSION_LEAST - 1;
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	assert_int_equal(transport_receive(fd, &m, &fds), 0);
	refused(&m, -EPROTO, "upgrade the client");
	protocol_init(&m, WIRE_KICK);
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	is_cut(fd);
	node_stop(&node);
}

TEST_IN_FOLDER(what_breaks_the_protocol_ends_the_connection)
{
	static const enum wire_type replies[] = {WIRE_ERROR, WIRE_HELLO_REPLY, WIRE_DATASET_REPLY,
						 WIRE_SEGMENT_REPLY, WIRE_STATUS_REPLY};
	struct node node = {0};
	int fd, kept;

	node_start(&node, *state);
	kept = greet(&node);
	for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); i++) {
		union wire_message m;

		fd = greet(&node);
		protocol_init(&m, replies[i]);
		m.header.sequence = 1;
		if (replies[i] == WIRE_HELLO_REPLY) {
			m.hello.magic = WIRE_MAGIC;
			m.hello.version = WIRE_VERSION;
			m.header.sequence = 0;
		}
		assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
		is_cut(fd);
	}
	fd = greet(&node);
	assert_int_equal(send(fd, "nonsense", 8, 0), 8);
	is_cut(fd);
	/* Other clients are not affected. */
	{
		union wire_message m;

		ask_plain(kept, WIRE_STOP, &m);
		refused(&m, -EPROTO, "no session is open");
	}
	close(kept);
	node_stop(&node);
}

TEST_IN_FOLDER(requests_out_of_order)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;
	int fd, control, other;

	node_start(&node, *state);
	fd = greet(&node);
	control = open_session(fd, &m);
	assert_int_equal(control, -1);
	refused(&m, -EPROTO, "no dataset is open");
	ask_plain(fd, WIRE_SEGMENT, &m);
	refused(&m, -EPROTO, "no dataset is open");
	ask_plain(fd, WIRE_RESIDENTS, &m);
	refused(&m, -EPROTO, "no dataset is open");
	ask_plain(fd, WIRE_SEEK, &m);
	refused(&m, -EPROTO, "no session is open");
	open_dataset(fd, path, &m);
	assert_int_equal(m.header.type, WIRE_DATASET_REPLY);
	ask_plain(fd, WIRE_STOP, &m);
	refused(&m, -EPROTO, "no session is open");
	control = open_session(fd, &m);
	assert_int_equal(m.header.type, WIRE_SESSION_REPLY);
	assert_int_equal(m.session_reply.n_batches, 4);
	assert_true(control >= 0);
	close(control);
	assert_int_equal(open_session(fd, &m), -1);
	refused(&m, -EBUSY, "already has a session");
	/* Samples of this dataset have no fields. A client may ask for one all the same. */
	other = greet(&node);
	protocol_init(&m, WIRE_FIELD);
	strcpy(m.field.name, "image");
	assert_int_equal(ask(other, &m, NULL, 0, &fds), 0);
	assert_int_equal(m.header.type, WIRE_FIELD_REPLY);
	open_dataset(other, path, &m);
	assert_int_equal(open_session(other, &m), -1);
	refused(&m, -EINVAL, "without a recipe");
	close(other);
	ask_plain(fd, WIRE_SEEK, &m);
	assert_int_equal(m.header.type, WIRE_SEEK_REPLY);
	control = (int)m.seek_reply.generation;
	ask_plain(fd, WIRE_SEEK, &m);
	assert_int_equal(m.seek_reply.generation, control + 1);
	/* This message gets no reply, so the next reply belongs to the next request. */
	protocol_init(&m, WIRE_KICK);
	assert_int_equal(transport_send(fd, &m, NULL, 0), 0);
	ask_plain(fd, WIRE_STOP, &m);
	assert_int_equal(m.header.type, WIRE_STOP_REPLY);
	/* A connection has at most one dataset, so the descriptors of a second one are not accepted. */
	send_dataset(fd, path);
	is_cut(fd);
	node_stop(&node);
}

/* A client from before version negotiation, as it was released. */
TEST_IN_FOLDER(the_version_before_is_served)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;
	int fd, control;

	node_start(&node, *state);
	fd = greet_as(&node, WIRE_VERSION_LEAST);
	open_dataset(fd, path, &m);
	assert_int_equal(m.header.type, WIRE_DATASET_REPLY);
	control = open_session(fd, &m);
	assert_int_equal(m.header.type, WIRE_SESSION_REPLY);
	close(control);
	close(fd);
	/* Messages that the version does not have are refused. */
	for (int i = 0; i < 2; i++) {
		fd = greet_as(&node, WIRE_VERSION_LEAST);
		open_dataset(fd, path, &m);
		protocol_init(&m, i ? WIRE_RESIDENTS : WIRE_ORIGIN);
		assert_true(ask(fd, &m, NULL, 0, &fds) < 0);
		close(fd);
	}
	node_stop(&node);
}

static void look_at_origin(struct node *node, void *answer)
{
	*(struct job_origin *)answer = node->server.serving.jobs.first->origin;
}

TEST_IN_FOLDER(what_a_client_says_of_its_origin)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	union wire_message m;
	struct wire_fds fds;
	struct job_origin origin;
	int fd, control;

	node_start(&node, *state);
	fd = greet(&node);
	protocol_init(&m, WIRE_ORIGIN);
	strcpy(m.origin.slurm_job, "4711_3");
	strcpy(m.origin.account, "physics");
	assert_int_equal(ask(fd, &m, NULL, 0, &fds), 0);
	assert_int_equal(m.header.type, WIRE_ORIGIN_REPLY);
	open_dataset(fd, path, &m);
	control = open_session(fd, &m);
	node_ask(&node, look_at_origin, &origin);
	assert_string_equal(origin.slurm_job, "4711_3");
	assert_string_equal(origin.account, "physics");
	assert_string_equal(origin.pod, "");
	close(control);
	close(fd);
	/* A label with a quote would create another label. */
	fd = greet(&node);
	protocol_init(&m, WIRE_ORIGIN);
	m.header.sequence = 1;
	strcpy(m.origin.account, "x\",uid=\"0");
	(void)transport_send(fd, &m, NULL, 0);
	is_cut(fd);
	node_stop(&node);
}

/* The number of a ready segment, of the used dataset that has n_samples samples. */
struct ready {
	uint64_t n_samples;
	uint32_t id;
	bool found;
};

static void find_ready(struct node *n, void *answer)
{
	const struct cache *c = &n->server.serving.cache;
	struct ready *ready = answer;

	for (uint32_t i = 0; i < c->segments.size; i++) {
		const struct segment *s = c->segments.all[i];

		if (!s || s->dataset->info.n_samples != ready->n_samples || !cache_is_ready(s))
			continue;
		ready->id = s->id;
		ready->found = true;
	}
}

struct ready_of {
	struct node *node;
	struct ready ready;
};

static bool is_ready(void *user)
{
	struct ready_of *r = user;

	node_ask(r->node, find_ready, &r->ready);
	return r->ready.found;
}

/* A client gets chunks only of the dataset that it has shown, to read and not to write. */
TEST_IN_FOLDER(segments_are_of_ones_own_dataset)
{
	static const struct dataset_plan plans[2] = {
	    {.n_samples = 8, .bytes = 4096, .spread = 1024, .n_a_chunk = 2},
	    {.n_samples = 6, .bytes = 4096, .spread = 1024, .n_a_chunk = 2}};
	struct node node = {0};
	struct ready_of ready[2];
	union wire_message m;
	struct wire_fds fds;
	int fd[2], control[2];

	node_start(&node, *state);
	for (int i = 0; i < 2; i++) {
		char *path = make_dataset(*state, i ? "one" : "two", &plans[i]);

		fd[i] = greet(&node);
		open_dataset(fd[i], path, &m);
		control[i] = open_session(fd[i], &m);
		assert_true(control[i] >= 0);
		ready[i] = (struct ready_of){.node = &node, .ready.n_samples = plans[i].n_samples};
		wait_until(is_ready, &ready[i]);
		free(path);
	}
	protocol_init(&m, WIRE_SEGMENT);
	m.segment.segment = ready[0].ready.id;
	assert_int_equal(ask(fd[0], &m, NULL, 0, &fds), 0);
	assert_int_equal(m.header.type, WIRE_SEGMENT_REPLY);
	assert_int_equal(m.segment.segment, ready[0].ready.id);
	assert_int_equal(fds.n, 1);
	assert_int_equal(fcntl(fds.fd[0], F_GETFL) & O_ACCMODE, O_RDONLY);
	wire_fds_close(&fds);
	protocol_init(&m, WIRE_SEGMENT);
	m.segment.segment = ready[1].ready.id;
	assert_int_equal(ask(fd[0], &m, NULL, 0, &fds), 0);
	refused(&m, -ENOENT, "no such chunk segment");
	assert_int_equal(fds.n, 0);
	protocol_init(&m, WIRE_SEGMENT);
	m.segment.segment = SEGMENT_MAX - 1;
	assert_int_equal(ask(fd[0], &m, NULL, 0, &fds), 0);
	refused(&m, -ENOENT, "no such chunk segment");
	/* The table of chunks, too, is one's own dataset's, and for reading. */
	for (int i = 0; i < 2; i++) {
		protocol_init(&m, WIRE_RESIDENTS);
		assert_int_equal(ask(fd[i], &m, NULL, 0, &fds), 0);
		assert_int_equal(m.header.type, WIRE_RESIDENTS_REPLY);
		assert_int_equal(m.residents_reply.n_chunks, plans[i].n_samples / 2);
		assert_int_equal(fcntl(fds.fd[0], F_GETFL) & O_ACCMODE, O_RDONLY);
		assert_ptr_equal(mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fds.fd[0], 0), MAP_FAILED);
		wire_fds_close(&fds);
	}
	for (int i = 0; i < 2; i++) {
		close(control[i]);
		close(fd[i]);
	}
	node_stop(&node);
}

struct left {
	struct node *node;
	uint32_t n_connections, n_sessions, refs;
};

static void count_left(struct node *n, void *answer)
{
	struct left *l = answer;

	l->n_connections = n->server.n_connections;
	l->n_sessions = l->refs = 0;
	for (const struct session *q = n->server.serving.sessions; q; q = q->next)
		l->n_sessions++;
	for (const struct cached_dataset *d = n->server.serving.cache.datasets; d; d = d->next)
		l->refs += d->refs + d->n_sessions;
}

static bool is_nobody_left(void *user)
{
	struct left *l = user;

	node_ask(l->node, count_left, l);
	return l->n_connections == 0;
}

/* Whenever a client leaves, none of its resources stay. */
TEST_IN_FOLDER(who_leaves_takes_all_along)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	struct left left = {.node = &node};

	node_start(&node, *state);
	for (int when = 0; when < 4; when++) {
		union wire_message m;
		int fd = when == 0 ? connect_to(node.socket) : greet(&node);

		if (when == 2) { /* while its dataset is being opened */
			send_dataset(fd, path);
		} else if (when == 3) {
			open_dataset(fd, path, &m);
			close(open_session(fd, &m));
			node_ask(&node, count_left, &left);
			assert_int_equal(left.n_connections, 1);
			assert_int_equal(left.n_sessions, 1);
			assert_int_equal(left.refs, 3);
		}
		close(fd);
		wait_until(is_nobody_left, &left);
		assert_int_equal(left.n_sessions, 0);
		assert_int_equal(left.refs, 0);
	}
	node_stop(&node);
}

struct kept {
	uint64_t bytes, limit;
};

static void look_at_memory(struct node *n, void *answer)
{
	struct cache *c = &n->server.serving.cache;
	struct kept *kept = answer;

	kept->bytes = c->slot_bytes;
	if (kept->limit)
		c->limit_bytes = kept->limit;
}

/* Sends these words as a part of a subset. Returns the result of transport_receive(). */
static int send_part(int fd, uint64_t part, uint64_t first, uint64_t last, union wire_message *ret)
{
	struct wire_fds fds;

	protocol_init(ret, WIRE_SUBSET);
	ret->subset.part = part;
	ret->subset.words[0] = first;
	ret->subset.words[WIRE_SUBSET_WORDS - 1] = last;
	return ask(fd, ret, NULL, 0, &fds);
}

static int open_session_of(int fd, uint64_t subset_samples, union wire_message *ret)
{
	struct wire_fds got;

	protocol_init(ret, WIRE_OPEN_SESSION);
	ret->open_session.world = ret->open_session.stride = ret->open_session.batch = 1;
	ret->open_session.subset_samples = subset_samples;
	int r = ask(fd, ret, NULL, 0, &got);
	if (r == 0)
		wire_fds_close(&got);
	return r;
}

TEST_IN_FOLDER(a_subset_that_is_none_ends_the_connection)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	/* The dataset has only one word, of 8 bits. */
	static const struct {
		uint64_t part, first, last, says;
		bool at_once;
	} table[] = {
	    {.part = 1, .at_once = true},
	    {.part = UINT64_MAX, .at_once = true},
	    {.part = UINT64_MAX / 512, .at_once = true},
	    {.last = 1, .at_once = true},
	    {.first = 0x1ff, .says = 9},
	    {.first = 0x7f, .says = 8},
	    {.first = 0, .says = 1},
	};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	struct kept kept = {0};
	union wire_message m;

	node_start(&node, *state);
	int fd = greet(&node);
	assert_int_equal(send_part(fd, 0, 1, 0, &m), 0);
	refused(&m, -EPROTO, "no dataset is open");
	open_dataset(fd, path, &m);
	assert_true(open_session_of(fd, 1, &m) < 0); /* none was sent */
	close(fd);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		int r;

		fd = greet(&node);
		open_dataset(fd, path, &m);
		r = send_part(fd, table[i].part, table[i].first, table[i].last, &m);
		if (!table[i].at_once) {
			assert_int_equal(r, 0);
			assert_int_equal(m.header.type, WIRE_SUBSET_REPLY);
			r = open_session_of(fd, table[i].says, &m);
		}
		assert_true(r == -ECONNRESET || r == -EPIPE);
		close(fd);
	}
	node_ask(&node, look_at_memory, &kept);
	assert_int_equal(kept.bytes, 0);
	node_stop(&node);
}

TEST_IN_FOLDER(a_subset_is_counted)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct kept before, with, after;
	struct node node = {0};
	union wire_message m;

	node_start(&node, *state);
	int fd = greet(&node);
	open_dataset(fd, path, &m);
	for (int i = 0; i < 3; i++) { /* only the last subset counts */
		assert_int_equal(send_part(fd, 0, i == 2 ? 0x25 : 0xff, 0, &m), 0);
		assert_int_equal(m.header.type, WIRE_SUBSET_REPLY);
	}
	before.limit = with.limit = after.limit = 0;
	node_ask(&node, look_at_memory, &before);
	assert_int_equal(before.bytes, subset_bytes(8));
	assert_int_equal(open_session_of(fd, 3, &m), 0);
	assert_int_equal(m.header.type, WIRE_SESSION_REPLY);
	assert_int_equal(m.session_reply.n_batches, 3);
	node_ask(&node, look_at_memory, &with);
	assert_true(with.bytes > before.bytes);
	assert_int_equal(send_part(fd, 0, 1, 0, &m), 0);
	refused(&m, -EBUSY, "already has a session");
	close(fd);
	struct left left = {.node = &node};

	wait_until(is_nobody_left, &left);
	/* If there is no space for the subset, it is refused, and the connection continues. */
	after.limit = 1;
	node_ask(&node, look_at_memory, &after);
	assert_int_equal(after.bytes, 0);
	fd = greet(&node);
	after.limit = 256 * NODE_MIB;
	open_dataset(fd, path, &m); /* the dataset is served already */
	assert_int_equal(m.header.type, WIRE_DATASET_REPLY);
	assert_int_equal(send_part(fd, 0, 1, 0, &m), 0);
	refused(&m, -ENOSPC, "no space for a subset");
	node_ask(&node, look_at_memory, &after);
	assert_int_equal(send_part(fd, 0, 1, 0, &m), 0);
	assert_int_equal(m.header.type, WIRE_SUBSET_REPLY);
	close(fd);
	node_stop(&node);
}

/* Ends the time limit of all connections that still owe a message. */
static void let_time_pass(struct node *n, void *answer)
{
	uint32_t *n_due = answer;

	*n_due = 0;
	for (struct connection *c = n->server.connections; c; c = c->next) {
		if (!c->due_ns)
			continue;
		c->due_ns = 1;
		++*n_due;
	}
}

static void is_told(int fd, const char *says)
{
	union wire_message m;
	struct wire_fds fds;

	assert_int_equal(transport_receive(fd, &m, &fds), 0);
	refused(&m, -ETIMEDOUT, says);
	is_cut(fd);
}

/* A client that does not introduce itself, or sends no request, is cut off. A client that has done both may
 * be silent. */
TEST_IN_FOLDER(a_silent_newcomer_is_cut_off)
{
	static const struct dataset_plan plan = {.n_samples = 8, .bytes = 4096, .n_a_chunk = 2};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	union wire_message m;
	int silent, idle, half, whole;
	uint32_t n;

	node_start(&node, *state);
	silent = connect_to(node.socket);
	idle = greet(&node);
	node_ask(&node, let_time_pass, &n);
	assert_int_equal(n, 1);
	is_told(silent, "no HELLO message arrived within 10 s");
	half = greet(&node);
	whole = greet(&node);
	open_dataset(half, path, &m);
	open_dataset(whole, path, &m);
	assert_int_equal(send_part(half, 0, 0xff, 0, &m), 0);
	assert_int_equal(send_part(whole, 0, 0xff, 0, &m), 0);
	assert_int_equal(open_session_of(whole, 8, &m), 0);
	assert_int_equal(m.header.type, WIRE_SESSION_REPLY);
	node_ask(&node, let_time_pass, &n);
	assert_int_equal(n, 1);
	is_told(half, "the rest of the subset did not arrive within 60 s");
	ask_plain(idle, WIRE_SEGMENT, &m);
	refused(&m, -EPROTO, "no dataset is open");
	ask_plain(whole, WIRE_STOP, &m);
	assert_int_equal(m.header.type, WIRE_STOP_REPLY);
	close(idle);
	close(whole);
	node_stop(&node);
}
