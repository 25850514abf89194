/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions whose client asks for the samples of each batch. */
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/transport.h"

#define N_SAMPLES 120
#define ERROR     256

struct bench {
	char *path;
	struct node node;
	struct diesel_dataset *dataset;
};

static const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 64, .spread = 128, .n_a_chunk = 7};
static const struct dataset_plan equal = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = 7};

static void bench_start(struct bench *b, const char *root, const struct dataset_plan *p)
{
	char error[ERROR];

	b->path = make_dataset(root, "data", p);
	node_start(&b->node, root);
	if (diesel_dataset_open(b->path, b->node.socket, &b->dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
}

static void bench_stop(struct bench *b)
{
	diesel_dataset_close(b->dataset);
	node_stop(&b->node);
	free(b->path);
}

static struct diesel_session *open_session(struct bench *b, uint32_t batch, uint32_t slots)
{
	const struct diesel_session_options options = {
	    .flags = DIESEL_ASKED, .world = 1, .batch = batch, .slots = slots, .reconnect_ms = 10000};
	struct diesel_session *s;
	char error[ERROR];

	if (diesel_session_open(b->dataset, &options, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	return s;
}

static void take(struct diesel_session *s, const uint64_t *samples, uint32_t n)
{
	struct diesel_batch b;

	if (diesel_session_next(s, &b) != 0)
		fail_msg("%s", diesel_session_error(s));
	assert_int_equal(b.n_items, n);
	assert_null(b.packed);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(b.items[i].sample, samples[i]);
		assert_true(node_item_is_right(&b, i));
	}
	diesel_batch_release(b.lease);
}

TEST_IN_FOLDER(any_samples_in_any_order)
{
	for (int k = 0; k < 2; k++) {
		struct bench b = {0};
		struct diesel_session *s;
		uint64_t seed = 1;

		if (k)
			remove_folder(state), make_folder(state);
		bench_start(&b, *state, k ? &equal : &plan);
		s = open_session(&b, DIESEL_ASK_MAX, 0);
		for (int round = 0; round < 200; round++) {
			uint64_t samples[2][DIESEL_ASK_MAX];
			uint32_t n[2];

			for (int i = 0; i < 2; i++) {
				n[i] = 1 + (uint32_t)(seed % DIESEL_ASK_MAX);
				for (uint32_t j = 0; j < n[i]; j++) {
					seed = seed * UINT64_C(6364136223846793005) + 1;
					samples[i][j] = (seed >> 33) % N_SAMPLES;
				}
				assert_int_equal(diesel_session_ask(s, samples[i], n[i], (uint32_t)round), 0);
			}
			take(s, samples[0], n[0]);
			take(s, samples[1], n[1]);
		}
		assert_int_equal(diesel_session_next(s, &(struct diesel_batch){0}), 1);
		diesel_session_close(s);
		bench_stop(&b);
	}
}

TEST_IN_FOLDER(what_cannot_be_asked)
{
	static const struct diesel_session_options wrong[] = {
	    {.flags = DIESEL_ASKED, .world = 2, .batch = 1},
	    {.flags = DIESEL_ASKED, .world = 1, .batch = DIESEL_ASK_MAX + 1},
	    {.flags = DIESEL_ASKED | DIESEL_SHUFFLE, .world = 1, .batch = 1},
	    {.flags = DIESEL_ASKED, .world = 1, .batch = 1, .epoch = 1},
	    {.flags = DIESEL_ASKED, .world = 1, .batch = 1, .stride = 2},
	};
	const uint64_t samples[] = {0, 1, N_SAMPLES};
	struct bench b = {0};
	struct diesel_session *s;
	struct diesel_batch batch;
	uint32_t n = 0;

	bench_start(&b, *state, &plan);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char error[ERROR];

		assert_int_equal(diesel_session_open(b.dataset, &wrong[i], &s, error, sizeof(error)),
				 -EINVAL);
		assert_non_null(strstr(error, "DIESEL_ASKED"));
	}
	s = open_session(&b, 2, 0);
	assert_int_equal(diesel_session_ask(s, samples, 0, 0), -EINVAL);
	assert_int_equal(diesel_session_ask(s, samples, 3, 0), -EINVAL);
	assert_int_equal(diesel_session_ask(s, samples + 1, 2, 0), -ERANGE);
	assert_int_equal(diesel_session_seek(s, 0, 0), -EINVAL);
	while (diesel_session_ask(s, samples, 1, 0) == 0)
		n++;
	assert_int_equal(n, diesel_session_max_held(s) + 1);
	assert_int_equal(diesel_session_ask(s, samples, 1, 0), -EBUSY);
	assert_int_equal(diesel_session_next(s, &batch), 0);
	assert_int_equal(diesel_session_ask(s, samples, 1, 0), -EBUSY); /* the only slot is held */
	diesel_batch_release(batch.lease);
	assert_int_equal(diesel_session_ask(s, samples, 1, 0), 0);
	for (; n > 0; n--)
		take(s, samples, 1);
	assert_int_equal(diesel_session_next(s, &batch), 1);
	diesel_session_close(s);

	const struct diesel_session_options ordered = {.world = 1, .batch = 1};
	char error[ERROR];

	assert_int_equal(diesel_session_open(b.dataset, &ordered, &s, error, sizeof(error)), 0);
	assert_int_equal(diesel_session_ask(s, samples, 1, 0), -EINVAL);
	diesel_session_close(s);
	bench_stop(&b);
}

static void count_chunks(struct node *node, void *answer)
{
	*(uint64_t *)answer = node->server.serving.cache.datasets->n_cached;
}

/* The chunks behind the last one are read between batches, as many as the knob allows. */
TEST_IN_FOLDER(chunks_behind_the_last_are_read_ahead)
{
	struct bench b = {0};
	uint64_t n_cached = 0;

	bench_start(&b, *state, &plan);
	struct diesel_session *s = open_session(&b, 1, 0);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){0}, 1, 2), 0);
	take(s, &(uint64_t){0}, 1);
	for (int i = 0; i < 2000 && n_cached < 3; i++) {
		usleep(1000);
		node_ask(&b.node, count_chunks, &n_cached);
	}
	assert_int_equal(n_cached, 3);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){N_SAMPLES - 1}, 1, 64), 0); /* beyond the end */
	take(s, &(uint64_t){N_SAMPLES - 1}, 1);
	diesel_session_close(s);
	bench_stop(&b);
}

static void refresh(struct node *node, void *answer)
{
	const struct session *s = node->server.serving.sessions;

	*(bool *)answer = s && s->order.has_head;
	serving_refresh(&node->server.serving);
}

/* Knobs take effect while a batch waits for a slot. The session has no order whose chunks could be listed. */
TEST_IN_FOLDER(knobs_change_meanwhile)
{
	struct bench b = {0};
	bool waits = false;

	bench_start(&b, *state, &plan);
	struct diesel_session *s = open_session(&b, 1, 0);
	uint64_t n = diesel_session_max_held(s) + 1;
	for (int round = 0; round < 10000 && !waits; round++) { /* the wait lasts only for moments */
		for (uint64_t i = 0; i < n; i++)
			assert_int_equal(diesel_session_ask(s, &(uint64_t){i * 7}, 1, 2), 0);
		for (int i = 0; i < 4 && !waits; i++)
			node_ask(&b.node, refresh, &waits);
		for (uint64_t i = 0; i < n; i++)
			take(s, &(uint64_t){i * 7}, 1);
	}
	assert_true(waits);
	diesel_session_close(s);
	bench_stop(&b);
}

struct reads {
	uint64_t n, bytes;
};

static void count_reads(struct node *node, void *answer)
{
	const struct cache_counters *c = &node->server.serving.cache.counters;

	*(struct reads *)answer = (struct reads){c->reads, c->read_bytes};
}

static struct reads reads_of(struct bench *b)
{
	struct reads r;

	node_ask(&b->node, count_reads, &r);
	return r;
}

static void ask_and_take(struct diesel_session *s, uint64_t sample, uint32_t ahead)
{
	assert_int_equal(diesel_session_ask(s, &sample, 1, ahead), 0);
	take(s, &sample, 1);
}

/* From a chunk that is used once, only the requested sample is read. If the chunk is used again, all of it is
 * read, also while a client holds the part. */
TEST_IN_FOLDER(few_of_a_chunk)
{
	static const struct dataset_plan large = {.n_samples = 160, .bytes = 64 << 10, .n_a_chunk = 40};
	const uint64_t part_bytes = 256 << 10, chunk_bytes = 40 * (64 << 10);
	struct bench b = {0};
	struct diesel_batch held;

	bench_start(&b, *state, &large);
	struct diesel_session *s = open_session(&b, 1, 0);
	for (uint64_t chunk = 0; chunk < 3; chunk++)
		ask_and_take(s, chunk * 40 + 5, DIESEL_ASK_FEW);
	struct reads r = reads_of(&b);
	assert_int_equal(r.n, 3);
	assert_in_range(r.bytes, 3 * (64 << 10), 3 * part_bytes);
	ask_and_take(s, 5, DIESEL_ASK_FEW); /* the sample is in memory */
	assert_int_equal(reads_of(&b).n, 3);

	ask_and_take(s, 7, DIESEL_ASK_FEW);
	assert_int_equal(reads_of(&b).n, 4);
	assert_in_range(reads_of(&b).bytes - r.bytes, chunk_bytes, chunk_bytes + part_bytes);
	for (uint64_t i = 0; i < 40; i++)
		ask_and_take(s, i, i % 2 ? DIESEL_ASK_FEW : 0);
	assert_int_equal(reads_of(&b).n, 4);

	assert_int_equal(diesel_session_ask(s, &(uint64_t){45}, 1, DIESEL_ASK_FEW), 0);
	assert_int_equal(diesel_session_next(s, &held), 0);
	ask_and_take(s, 46, 0); /* the neighbours are needed, too */
	ask_and_take(s, 79, DIESEL_ASK_FEW);
	assert_true(node_item_is_right(&held, 0));
	assert_int_equal(reads_of(&b).n, 5);
	diesel_batch_release(held.lease);

	/* A sample that waits behind another batch gets its whole chunk read meanwhile, or only the sample is
	 * read when its turn comes. */
	assert_int_equal(diesel_session_ask(s, &(uint64_t){90}, 1, DIESEL_ASK_FEW), 0);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){130}, 1, 0), 0);
	take(s, &(uint64_t){90}, 1);
	take(s, &(uint64_t){130}, 1);
	ask_and_take(s, 159, 0);
	assert_int_equal(reads_of(&b).n, 7);
	diesel_session_close(s);
	bench_stop(&b);
}

/* If another session goes through all samples, chunks are read whole. */
TEST_IN_FOLDER(few_of_what_another_one_needs_whole)
{
	static const struct dataset_plan large = {.n_samples = 1600, .bytes = 16 << 10, .n_a_chunk = 100};
	const struct diesel_session_options options = {
	    .world = 1, .batch = 4, .slots = 2, .reconnect_ms = 10000};
	struct bench b = {0};
	struct diesel_session *all, *s;
	char error[ERROR];

	bench_start(&b, *state, &large);
	if (diesel_session_open(b.dataset, &options, &all, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	s = open_session(&b, 1, 0);
	for (uint64_t chunk = 15; chunk > 12; chunk--)
		ask_and_take(s, chunk * 100, DIESEL_ASK_FEW);
	struct reads r = reads_of(&b);
	assert_true(r.n >= 4 && r.bytes >= r.n * 100 * (16 << 10));
	diesel_session_close(s);
	diesel_session_close(all);
	bench_stop(&b);
}

/* Opens a connection with an asked session, without libdiesel. */
static struct transport connect_by_hand(const struct bench *b)
{
	int dir = open(b->path, O_RDONLY | O_DIRECTORY), snapshot = openat(dir, "snapshot", O_RDONLY);
	struct transport t;
	struct error err = ERROR_INIT;
	union wire_message m, reply;

	assert_int_equal(transport_connect(b->node.socket, &t, &err), 0);
	assert_int_equal(transport_hello(&t, &err), 0);
	protocol_init(&m, WIRE_OPEN_DATASET);
	if (transport_call(&t, &m, &(struct wire_fds){{dir, snapshot}, 2}, WIRE_DATASET_REPLY, &reply, NULL,
			   &err) < 0)
		fail_msg("%s", err.text);
	protocol_init(&m, WIRE_OPEN_SESSION);
	m.open_session.flags = DIESEL_ASKED;
	m.open_session.world = m.open_session.batch = m.open_session.stride = 1;
	if (transport_call(&t, &m, NULL, WIRE_SESSION_REPLY, &reply, NULL, &err) < 0)
		fail_msg("%s", err.text);
	close(dir);
	close(snapshot);
	return t;
}

/* A client is cut off if it asks for more batches than there are slots, skips a number, or asks for more than
 * a batch. An honest client at the same time is not affected. */
TEST_IN_FOLDER(a_client_that_asks_wrongly_is_cut_off)
{
	struct bench b = {0};

	bench_start(&b, *state, &plan);
	for (int k = 0; k < 3; k++) {
		struct transport t = connect_by_hand(&b);
		union wire_message m;
		char byte;

		protocol_init(&m, WIRE_ASK);
		m.ask.n_samples = k == 2 ? 2 : 1;
		m.ask.index = k == 1;
		for (; m.ask.index < 200 && transport_send(t.fd, &m, NULL, 0) == 0; m.ask.index++)
			continue;
		assert_true(recv(t.fd, &byte, 1, 0) <= 0);
		transport_close(&t);
	}
	struct diesel_session *s = open_session(&b, 1, 0);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){5}, 1, 0), 0);
	take(s, &(uint64_t){5}, 1);
	diesel_session_close(s);
	bench_stop(&b);
}

TEST_IN_FOLDER(a_new_daemon_is_told)
{
	struct bench b = {0};
	struct diesel_batch batch;
	char *socket;
	int r;

	bench_start(&b, *state, &plan);
	struct diesel_session *s = open_session(&b, 1, 0);
	for (uint64_t i = 0; i < 2; i++)
		assert_int_equal(diesel_session_ask(s, &(uint64_t){i * 50}, 1, 0), 0);
	take(s, &(uint64_t){0}, 1);
	socket = b.node.socket;
	b.node.socket = NULL;
	node_stop(&b.node);
	free(socket);
	b.node = (struct node){0};
	node_start(&b.node, *state);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){99}, 1, 0), 0);
	do
		r = diesel_session_next(s, &batch);
	while (r == -EINTR);
	assert_int_equal(r, 0);
	assert_int_equal(batch.items[0].sample, 50);
	assert_true(node_item_is_right(&batch, 0));
	diesel_batch_release(batch.lease);
	take(s, &(uint64_t){99}, 1);
	assert_int_equal(diesel_session_next(s, &batch), 1);
	diesel_session_close(s);
	bench_stop(&b);
}
