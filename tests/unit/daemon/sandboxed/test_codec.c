/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders that were taken over by an attacker. Answers that do not fit the order are refused. The processes
 * are stand-ins, and so is the fork server that forks them. */
#include "tests/support_loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/sandboxed/codec.h"
#include "daemon/sandboxed/codec_message.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"

#define BATCH 4

static int receive(int fd, void *message, size_t bytes, int *ret_fd)
{
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;
	int r = fd_message_receive(fd, message, bytes, 0, fds, &n_fds);

	*ret_fd = r > 0 && n_fds > 0 ? fds[0] : -EBADF;
	return r;
}

#define WORK_NS (20 * NS_PER_MS)

/* Uses WORK_NS of CPU time. */
static void work(void)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while ((uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec < WORK_NS);
}

/* How a decoder handles orders until *go is GO. */
enum { BEGUN = 1, GO };
enum manner { ANSWERS, SPINS, SLEEPS, TAKES_NOTHING };
static enum manner manner;
static _Atomic uint32_t *go;

static void delay(void)
{
	if (manner == SPINS || manner == SLEEPS)
		atomic_store(go, BEGUN);
	while ((manner == SPINS || manner == SLEEPS) && atomic_load(go) != GO) {
		if (manner == SLEEPS)
			usleep(1000);
	}
}

/* Reports that it is ready, works, and answers each order with `answer`. answer NULL: ends instead. */
static void decoder(int fd, const struct codec_done *answer)
{
	struct codec_message m, started = {.type = CODEC_STARTED, .pid = getpid()},
				ready = {.type = CODEC_READY}, done = {.type = CODEC_DONE};
	int theirs, pidfd = kernel_pidfd_open(getpid());

	if (answer)
		done.done = *answer;

	if (receive(fd, &m, sizeof(m), &theirs) <= 0 ||
	    fd_message_send(fd, &started, sizeof(started), &pidfd, 1, 0) < 0 ||
	    fd_message_send(fd, &ready, sizeof(ready), NULL, 0, 0) < 0)
		_exit(1);
	while (manner == TAKES_NOTHING && atomic_load(go) != GO)
		usleep(1000);
	while (receive(fd, &m, sizeof(m), &theirs) > 0) {
		close(theirs);
		if (m.type != CODEC_ORDER)
			continue;
		delay();
		work();
		if (!answer)
			break;
		(void)fd_message_send(fd, &done, sizeof(done), NULL, 0, 0);
	}
	_exit(0);
}

static void fork_server(int fd, const struct codec_done *answer)
{
	struct fork_server_order order;
	int theirs;

	signal(SIGCHLD, SIG_IGN);
	while (receive(fd, &order, sizeof(order), &theirs) > 0) {
		if (fork() == 0) {
			close(fd);
			decoder(theirs, answer);
		}
		close(theirs);
	}
	_exit(0);
}

static uint32_t made[2]; /* recorded bytes of the decoded copies */

struct setup {
	struct fork_server fork_server;
	struct codecs *codecs;
	struct ring_layout layout;
	struct ring_item *items;
	int64_t *labels;
	int slots_fd;
};

static void begin(struct setup *s, const struct codec_done *answer)
{
	const struct recipe recipe = {
	    .kind = RECIPE_IMAGE, .width = 2, .height = 2, .filter = RECIPE_BILINEAR};
	int fds[2];

	assert_null(recipe_check(&recipe));
	s->layout = ring_layout(BATCH, (uint32_t)recipe_item_bytes(&recipe));
	s->slots_fd = memfd_create("slots", MFD_CLOEXEC);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	s->fork_server = (struct fork_server){.fd = fds[0], .pid = fork()};
	if (s->fork_server.pid == 0) {
		close(fds[0]);
		fork_server(fds[1], answer);
	}
	close(fds[1]);
	assert_int_equal(ftruncate(s->slots_fd, (off_t)s->layout.slot_bytes), 0);
	s->items = mmap(NULL, s->layout.slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->slots_fd, 0);
	assert_true(s->items != MAP_FAILED);
	for (int i = 0; i < BATCH; i++)
		s->items[i].location = UINT64_C(1) << 32;
	s->labels = (int64_t *)((uint8_t *)s->items + s->layout.labels_offset);
	assert_int_equal(codecs_new(&(struct codecs_setup){.fork_server = &s->fork_server,
							   .recipe = &recipe,
							   .plugin_fd = -EBADF,
							   .seed = 1,
							   .layout = &s->layout,
							   .n_slots = 1,
							   .batch = BATCH,
							   .slots = (uint8_t *)s->items,
							   .slots_fd = s->slots_fd,
							   .max_idle = 1},
				    &s->codecs),
			 0);
}

static void end(struct setup *s)
{
	codecs_free(s->codecs);
	close(s->fork_server.fd);
	assert_int_equal(waitpid(s->fork_server.pid, NULL, 0), s->fork_server.pid);
	munmap(s->items, s->layout.slot_bytes);
	close(s->slots_fd);
}

/* Returns the result of an order for items 1 to 3 with this answer. says: the sizes of decoded copies that
 * the answer claims to have made. grant_bytes: memory for them, from 64 on; 0: none. */
static int decode_with(const struct codec_done *answer, const int64_t says[2], uint64_t grant_bytes,
		       struct codec_result *ret_result)
{
	int grant_fd = memfd_create("grant", MFD_CLOEXEC), r;
	const struct codec_work work = {.first = 1,
					.end = 3,
					.grant = {.fd = grant_bytes ? grant_fd : -1, .bytes = grant_bytes},
					.grant_offset = 64,
					.made_bytes = made};
	struct setup s;

	begin(&s, answer);
	memcpy(s.labels + 1, says, 2 * sizeof(*says));
	r = codecs_decode(s.codecs, &work, ret_result);
	end(&s);
	close(grant_fd);
	return r;
}

static int decode(const struct codec_done *answer, struct codec_result *ret_result)
{
	return decode_with(answer, (int64_t[2]){0}, 0, ret_result);
}

TEST(answers_that_fit)
{
	const struct codec_done all = {.next = 3}, damaged = {.status = -EBADMSG, .next = 2, .item = 2};
	struct codec_result result;

	assert_int_equal(decode(&all, &result), 0);
	assert_int_equal(result.next, 3);
	assert_int_equal(decode(&damaged, &result), -EBADMSG);
	assert_int_equal(result.item, 2);
}

TEST(answers_that_do_not)
{
	static const struct codec_done answers[] = {
	    {.status = -EBADMSG, .next = 1, .item = 3},          /* outside of the order */
	    {.status = -EBADMSG, .next = 1, .item = UINT32_MAX}, /* outside of all memory */
	    {.next = 3, .n_damaged = 1, .item = 1u << 30},       /* far outside, without an error */
	    {.next = 1},                                         /* no progress, for ever */
	    {.next = 0},                                         /* before the order's first item */
	    {.next = 4},                                         /* more than requested */
	    {.next = 3, .n_damaged = 3, .item = 1},              /* more damaged items than the order has */
	    {.status = 1, .next = 3},
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct codec_result result;

		assert_int_equal(decode(&answers[i], &result), -EBADMSG);
		assert_int_equal(result.item, 1);
		assert_string_equal(result.error.text, "the sample crashes the processes that decode it");
	}
}

/* The CPU time is measured without the decoder's help. */
TEST(a_decoder_s_cpu_time_is_measured)
{
	const struct codec_done all = {.next = 3}, damaged = {.next = 3, .n_damaged = 1, .item = 2};
	struct codec_result result;

	assert_int_equal(decode(&all, &result), 0);
	assert_true(result.cpu_ns >= WORK_NS);
	assert_int_equal(result.n_damaged, 0);
	assert_int_equal(result.n_replaced, 0);
	assert_int_equal(decode(&damaged, &result), 0);
	assert_int_equal(result.n_damaged, 1);
	/* The decoder ends with each order. All three attempts count. */
	assert_int_equal(decode(NULL, &result), -EBADMSG);
	assert_true(result.cpu_ns >= 3 * WORK_NS);
	assert_int_equal(result.n_damaged, 1);
	assert_int_equal(result.n_replaced, 3);
}

/* Decoded copies must lie in the granted memory, one behind the other at multiples of 64. */
TEST(decoded_must_lie_where_allowed)
{
	static const struct {
		int64_t says[2];
		uint64_t grant_bytes;
		bool fits;
	} table[] = {
	    {{0, 0}, 0, true},
	    {{1, 0}, 0, false}, /* none was granted */
	    {{100, 0}, 4096, true},
	    {{100, 3840}, 4096, true}, /* 64 + 128 + 3840 + 64 left over */
	    {{100, 3904}, 4096, true},
	    {{100, 3905}, 4096, false},
	    {{4032, 0}, 4096, true},
	    {{4032, 1}, 4096, false},
	    {{4033, 0}, 4096, false},
	    {{-1, 0}, 4096, false},
	    {{INT64_MAX, INT64_MAX}, 4096, false},
	    {{INT64_C(1) << 32, 0}, 4096, false},
	};
	const struct codec_done all = {.next = 3, .full = true, .ways = {{.n = 2, .cpu_ns = 9}}};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct codec_result result;
		int r = decode_with(&all, table[i].says, table[i].grant_bytes, &result);

		assert_int_equal(r, table[i].fits ? 0 : -EBADMSG);
		for (int k = 0; k < 2; k++)
			assert_int_equal(made[k], table[i].fits ? table[i].says[k] : 0);
		if (!table[i].fits)
			continue;
		assert_true(result.full);
		assert_int_equal(result.ways[CODEC_FRESH].n, 2);
	}
}

#define N_OTHERS 50

struct order {
	struct pool_task task;
	struct setup *setup;
	struct codec_work work;
	struct codec_result result;
	int r;
	bool is_done;
};

static void order_work(struct pool_task *task)
{
	struct order *o = (struct order *)task;

	o->r = codecs_decode(o->setup->codecs, &o->work, &o->result);
	task->elsewhere_ns = o->result.cpu_ns;
}

static void *order_run(void *order)
{
	order_work(order);
	return NULL;
}

static void order_done(struct pool_task *task)
{
	((struct order *)task)->is_done = true;
}

struct other {
	struct pool_task task;
	uint32_t *n_done;
};

static void other_work(struct pool_task *task)
{
}

static void other_done(struct pool_task *task)
{
	++*((struct other *)task)->n_done;
}

static bool others_are_done(void *n_done)
{
	return *(uint32_t *)n_done == N_OTHERS;
}

static bool has_finished(void *pool)
{
	return pool_in_flight(pool) == 0;
}

/* There is only one worker. While a decoder does not return from its order, another user's tasks are done.
 * Then the order is done, and its user is charged for it. */
static void with_slow_decoder(enum manner how, uint32_t n_segments)
{
	static struct other others[N_OTHERS];
	static struct codec_segment segments[CODEC_MAX_SEGMENTS];
	const struct codec_done all = {.next = 3};
	struct pool_lane lanes[2];
	struct order order = {.task = {.work = order_work, .done = order_done, .is_long = true}};
	uint32_t n_done = 0;
	struct setup s;
	struct pool *pool;
	uv_loop_t loop;

	manner = how;
	go = mmap(NULL, sizeof(*go), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(go != MAP_FAILED);
	begin(&s, &all);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(pool_new(&loop, 1, &pool), 0);
	for (uint32_t i = 0; i < 2; i++)
		pool_lane_init(&lanes[i], i);
	for (uint32_t i = 0; i < n_segments; i++)
		segments[i] = (struct codec_segment){.fd = s.slots_fd, .bytes = 1};
	order.setup = &s;
	order.work = (struct codec_work){.pool = pool,
					 .task = &order.task,
					 .first = 1,
					 .end = 3,
					 .segments = segments,
					 .n_segments = n_segments,
					 .grant = {.fd = -1}};
	pool_submit(pool, &lanes[0], &order.task);
	for (int i = 0; i < 60000 && how != TAKES_NOTHING && atomic_load(go) != BEGUN; i++)
		usleep(1000);
	for (int i = 0; i < N_OTHERS; i++) {
		others[i] =
		    (struct other){.task = {.work = other_work, .done = other_done}, .n_done = &n_done};
		pool_submit(pool, &lanes[1], &others[i].task);
	}
	loop_until(&loop, others_are_done, &n_done);
	assert_false(order.is_done);
	atomic_store(go, GO);
	loop_until(&loop, has_finished, pool);
	assert_int_equal(order.r, 0);
	assert_int_equal(order.result.next, 3);
	assert_int_equal(order.result.n_replaced, 0);
	assert_true(pool_lane_cpu_ns(&lanes[0]) >= WORK_NS);
	pool_free(pool);
	loop_end(&loop);
	end(&s);
	munmap(go, sizeof(*go));
	manner = ANSWERS;
}

/* Cancelled work ends, even in the middle of a sample. */
TEST(cancelled_work_ends_within_a_sample)
{
	const struct codec_done all = {.next = 3};
	const struct codec_work work = {.first = 1, .end = 3, .grant = {.fd = -1}};
	struct order order = {.work = work};
	struct setup s;
	pthread_t thread;

	manner = SPINS;
	go = mmap(NULL, sizeof(*go), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(go != MAP_FAILED);
	begin(&s, &all);
	order.setup = &s;
	assert_int_equal(pthread_create(&thread, NULL, order_run, &order), 0);
	for (int i = 0; i < 60000 && atomic_load(go) != BEGUN; i++)
		usleep(1000);
	codecs_cancel(s.codecs);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(order.r, -ECANCELED);
	assert_int_equal(codecs_decode(s.codecs, &work, &order.result),
			 -ECANCELED); /* no other work begins, either */
	end(&s);
	munmap(go, sizeof(*go));
	manner = ANSWERS;
}

TEST(a_slow_decoder_gives_way)
{
	with_slow_decoder(SPINS, 1);
	with_slow_decoder(SLEEPS, 1);
	with_slow_decoder(TAKES_NOTHING, CODEC_MAX_SEGMENTS);
}
