/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions whose client asks for the samples of each batch. */
#include "node.h"

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

static void test_any_samples_in_any_order(void **state)
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

static void test_what_cannot_be_asked(void **state)
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
	assert_int_equal(diesel_session_ask(s, samples, 1, 0), -EBUSY); /* it is held */
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

/* The chunks behind the last one come in between batches, as many as the knob allows. */
static void test_reading_ahead(void **state)
{
	struct bench b = {0};
	struct diesel_session *s;
	uint64_t n_cached = 0;

	bench_start(&b, *state, &plan);
	s = open_session(&b, 1, 0);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){0}, 1, 2), 0);
	take(s, &(uint64_t){0}, 1);
	for (int i = 0; i < 2000 && n_cached < 3; i++) {
		usleep(1000);
		node_ask(&b.node, count_chunks, &n_cached);
	}
	assert_int_equal(n_cached, 3);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){N_SAMPLES - 1}, 1, 64), 0); /* behind the end */
	take(s, &(uint64_t){N_SAMPLES - 1}, 1);
	diesel_session_close(s);
	bench_stop(&b);
}

/* A connection with an asked session, by hand. */
static struct transport connect_by_hand(const struct bench *b)
{
	int dir = open(b->path, O_RDONLY | O_DIRECTORY), snapshot = openat(dir, "snapshot", O_RDONLY);
	struct transport t;
	struct error err = ERROR_INIT;
	union wire_message m, reply;

	assert_int_equal(transport_connect(b->node.socket, &t, &err), 0);
	assert_int_equal(transport_hello(&t, &err), 0);
	protocol_init(&m, WIRE_OPEN_DATASET);
	if (transport_call(&t, &m, (int[]){dir, snapshot}, 2, WIRE_DATASET_REPLY, &reply, NULL, &err) < 0)
		fail_msg("%s", err.text);
	protocol_init(&m, WIRE_OPEN_SESSION);
	m.open_session.flags = DIESEL_ASKED;
	m.open_session.world = m.open_session.batch = m.open_session.stride = 1;
	if (transport_call(&t, &m, NULL, 0, WIRE_SESSION_REPLY, &reply, NULL, &err) < 0)
		fail_msg("%s", err.text);
	close(dir);
	close(snapshot);
	return t;
}

/* Whoever asks for more than there are slots, leaves a number out, or wants more than a batch is cut off; an
 * honest client beside them goes on. */
static void test_a_client_that_asks_wrongly_is_cut_off(void **state)
{
	struct bench b = {0};
	struct diesel_session *s;

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
	s = open_session(&b, 1, 0);
	assert_int_equal(diesel_session_ask(s, &(uint64_t){5}, 1, 0), 0);
	take(s, &(uint64_t){5}, 1);
	diesel_session_close(s);
	bench_stop(&b);
}

static void test_a_new_daemon_is_told(void **state)
{
	struct bench b = {0};
	struct diesel_session *s;
	struct diesel_batch batch;
	char *socket;
	int r;

	bench_start(&b, *state, &plan);
	s = open_session(&b, 1, 0);
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

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CASE(test_any_samples_in_any_order),
	    CASE(test_what_cannot_be_asked),
	    CASE(test_reading_ahead),
	    CASE(test_a_client_that_asks_wrongly_is_cut_off),
	    CASE(test_a_new_daemon_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
