/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side, with a process that the test plays. Its messages come through a socket, as from the real
 * process. */
#include "tests/support_loop.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/cluster/cluster.h"
#include "daemon/cluster/cluster_message.h"
#include "dataset/owner.h"
#include "lib/clock.h"
#include "lib/fd_message.h"

#define BYTES 1000

static const struct registry_group_key job = {.uid = 5, .job = "j"};

struct test {
	uv_loop_t loop;
	uv_timer_t alive; /* keeps the loop alive, which nothing of the cluster does */
	struct cluster *cluster;
	struct cluster_group *group;
	int keeper, process; /* the test's ends of the sockets */
	uint32_t n_done, n_given, n_changed;
	int result;
	char text[512];
	struct cluster_question *question;
	void *given;
};

static void on_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		     struct cluster_question *question)
{
	struct test *t = user;

	assert_ptr_equal(group, t->group);
	t->question = question;
}

static void on_given(void *user, void *answer)
{
	struct test *t = user;

	t->given = answer;
	t->n_given++;
}

static void on_changed(void *user, struct cluster_group *group)
{
	((struct test *)user)->n_changed++;
}

struct reading {
	struct cluster_read read;
	struct test *test;
};

static void on_done(struct cluster_read *read, int result, const struct error *err)
{
	struct test *t = ((struct reading *)read)->test;

	t->n_done++;
	t->result = result;
	strcpy(t->text, err->text);
}

/* ---- the process that the test plays --------------------------------------------------------------------
 */

static void start_process(struct test *t)
{
	const struct fork_server_news started = {.pid = 1};
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	assert_int_equal(fd_message_send(t->keeper, &started, sizeof(started), &ends[1], 1, 0), 0);
	close(ends[1]);
	t->process = ends[0];
}

struct taking {
	struct test *test;
	struct cluster_order order;
	int memory_fd;
	bool has;
};

static bool takes(void *user)
{
	struct taking *k = user;
	int fds[FD_MESSAGE_MAX_FDS], r;
	size_t n_fds;

	if (k->has)
		return true;
	r = fd_message_receive(k->test->process, &k->order, sizeof(k->order), MSG_DONTWAIT, fds, &n_fds);
	if (r < 0)
		return false;
	assert_int_equal(r, sizeof(k->order));
	k->memory_fd = n_fds ? fds[0] : -1;
	k->has = true;
	return true;
}

static bool always(void *user)
{
	uv_loop_t *loop = user;

	uv_run(loop, UV_RUN_NOWAIT);
	return true;
}

/* Returns the next order, which must have this verb. */
static struct cluster_order take_order(struct test *t, enum cluster_verb verb, int *memory_fd)
{
	struct taking k = {.test = t};

	for (int i = 0; i < 20000 && !takes(&k); i++) {
		uv_run(&t->loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_true(k.has);
	assert_int_equal(k.order.verb, verb);
	if (memory_fd)
		*memory_fd = k.memory_fd;
	else
		assert_int_equal(k.memory_fd, -1);
	return k.order;
}

static void report(struct test *t, struct cluster_report r)
{
	assert_int_equal(send(t->process, &r, sizeof(r), 0), sizeof(r));
}

static void report_peer(struct test *t, uint32_t peer, const char *node, bool is_unreachable)
{
	struct cluster_report r = {.news = CLUSTER_PEER, .peer = peer};

	r.peer_is.is_unreachable = is_unreachable;
	strcpy(r.peer_is.node, node);
	report(t, r);
}

static void report_member(struct test *t, const struct net_group_id *id, uint32_t peer, const char *node)
{
	struct cluster_report r = {.news = CLUSTER_MEMBER, .group = *id, .peer = peer, .bytes = 100};

	strcpy(r.peer_is.node, node);
	report(t, r);
}

/* Reports that the group has this node and its only peer "b". */
static void report_two(struct test *t, const struct net_group_id *id)
{
	uint32_t before = t->n_changed;

	report_peer(t, 3, "b", false);
	report(t, (struct cluster_report){.news = CLUSTER_MEMBERS, .group = *id});
	report_member(t, id, CLUSTER_SELF, "a");
	report_member(t, id, 3, "b");
	report(t, (struct cluster_report){.news = CLUSTER_MEMBERS, .group = *id, .count = 1});
	loop_until_count(&t->loop, &t->n_changed, before + 1);
}

/* ---- */

static void on_alive(uv_timer_t *timer)
{
}

static int setup(void **state)
{
	struct test *t = calloc(1, sizeof(*t));
	const struct cluster_handler handler = {
	    .asked = on_asked, .given = on_given, .changed = on_changed, .user = t};
	int ends[2];

	socket_pair(ends);
	struct fork_server keeper = (struct fork_server){.fd = ends[0], .pid = 1};
	t->keeper = ends[1];
	uv_loop_init(&t->loop);
	uv_timer_init(&t->loop, &t->alive);
	uv_timer_start(&t->alive, on_alive, 5, 5);
	assert_int_equal(cluster_new(&t->loop, &keeper, &handler, &t->cluster), 0);
	assert_int_equal(keeper.fd, -EBADF);
	assert_int_equal(cluster_join(t->cluster, &job, "/data", 1000, &(struct owner_lanes){0}, &t->group),
			 0);
	assert_int_equal(cluster_n_members(t->group), 1);
	start_process(t);
	struct cluster_order joined = take_order(t, CLUSTER_JOIN, NULL);
	assert_string_equal(joined.path, "/data");
	assert_int_equal(joined.bytes, 1000);
	report_two(t, &joined.group);
	assert_int_equal(cluster_n_members(t->group), 2);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	struct test *t = *state;

	cluster_free(t->cluster);
	uv_close((uv_handle_t *)&t->alive, NULL);
	loop_end(&t->loop);
	close(t->keeper);
	close(t->process);
	free(t);
	return 0;
}

/* Returns a chunk that this node owns, or "b". */
static struct chunk_id chunk_of(const struct test *t, bool is_ours)
{
	struct chunk_id id = {.bytes = {0}};

	while (cluster_is_ours(t->group, &id, NULL) != is_ours)
		id.bytes[0]++;
	return id;
}

static struct reading reading_of(struct test *t)
{
	return (struct reading){.read = {.group = t->group,
					 .chunk = chunk_of(t, false),
					 .bytes = BYTES,
					 .memory_fd = nameless_file("", 0),
					 .patience_ns = 60000000000,
					 .done = on_done},
				.test = t};
}

static void done(struct test *t, uint64_t id, int code, const char *text)
{
	struct cluster_report r = {.news = CLUSTER_DONE, .id = id, .code = code};

	strcpy(r.text, text);
	report(t, r);
}

TEST_WITH(chunk_is_had, setup, teardown)
{
	struct test *t = *state;
	struct reading r = reading_of(t);
	struct cluster_figures figures;
	int fd;

	assert_int_equal(cluster_fetch(&r.read), 0);
	struct cluster_order order = take_order(t, CLUSTER_FETCH, &fd);
	assert_true(fd >= 0);
	assert_int_equal(order.peer, 3);
	assert_int_equal(order.name_hash, owner_hash("b"));
	assert_int_equal(order.bytes, BYTES);
	assert_memory_equal(&order.chunk, &r.read.chunk, sizeof(order.chunk));
	close(fd);
	done(t, order.id + 17, 0, ""); /* of no read */
	done(t, order.id, 0, "");
	loop_until_count(&t->loop, &t->n_done, 1);
	assert_int_equal(t->result, 0);
	cluster_figures_get(t->cluster, &figures);
	assert_int_equal(figures.chunks_in, 1);
	assert_int_equal(figures.bytes_in, BYTES);
	done(t, order.id, 0, ""); /* the same answer again */
	always(&t->loop);
	assert_int_equal(t->n_done, 1);
	close(r.read.memory_fd);
}

TEST_WITH(errors_say_whose, setup, teardown)
{
	static const int codes[] = {-ETIMEDOUT, -ENOENT, -EBUSY, -EBADMSG};
	struct test *t = *state;
	struct cluster_figures figures;

	for (uint32_t i = 0; i < 4; i++) {
		struct reading r = reading_of(t);
		int fd;

		assert_int_equal(cluster_fetch(&r.read), 0);
		done(t, take_order(t, CLUSTER_FETCH, &fd).id, codes[i], "something");
		loop_until_count(&t->loop, &t->n_done, i + 1);
		assert_int_equal(t->result, codes[i]);
		assert_string_equal(t->text, "node b: something");
		close(fd);
		close(r.read.memory_fd);
	}
	cluster_figures_get(t->cluster, &figures);
	assert_int_equal(figures.late, 1);
	assert_int_equal(figures.refused, 2);
	assert_int_equal(figures.failed, 1);
}

TEST_WITH(ours_is_not_asked_for, setup, teardown)
{
	struct test *t = *state;
	struct reading r = reading_of(t);

	close(r.read.memory_fd);
	r.read.chunk = chunk_of(t, true);
	assert_int_equal(cluster_fetch(&r.read), -EAGAIN);
	report_peer(t, 3, "b", true);
	loop_until_count(&t->loop, &t->n_changed, 2);
	assert_int_equal(cluster_n_members(t->group), 1);
	r.read.chunk.bytes[1] = 9;
	for (int i = 0; i < 50; i++, r.read.chunk.bytes[0]++)
		assert_true(cluster_is_ours(t->group, &r.read.chunk, NULL));
	report_peer(t, 3, "b", false);
	loop_until_count(&t->loop, &t->n_changed, 3);
	assert_int_equal(cluster_n_members(t->group), 2);
}

TEST_WITH(more_than_are_asked_for_at_once, setup, teardown)
{
	enum { N = CLUSTER_MAX_READS + 10 };
	struct test *t = *state;
	struct reading r[N];
	uint64_t ids[N];
	int fd;

	for (size_t i = 0; i < N; i++) {
		r[i] = reading_of(t);
		assert_int_equal(cluster_fetch(&r[i].read), 0);
	}
	for (uint32_t i = 0; i < CLUSTER_MAX_READS; i++) {
		ids[i] = take_order(t, CLUSTER_FETCH, &fd).id;
		close(fd);
	}
	always(&t->loop);
	assert_false(takes(&(struct taking){.test = t}));
	for (uint32_t i = 0; i < N; i++) { /* when one ends, the next one is sent, the oldest first */
		done(t, ids[i], 0, "");
		loop_until_count(&t->loop, &t->n_done, i + 1);
		if (CLUSTER_MAX_READS + i < N) {
			ids[CLUSTER_MAX_READS + i] = take_order(t, CLUSTER_FETCH, &fd).id;
			assert_int_equal(ids[CLUSTER_MAX_READS + i], r[CLUSTER_MAX_READS + i].read.id);
			close(fd);
		}
	}
	for (size_t i = 0; i < N; i++)
		close(r[i].read.memory_fd);
}

TEST_WITH(process_that_ends_fails_reads_and_is_joined_again, setup, teardown)
{
	struct test *t = *state;
	struct reading r = reading_of(t), later = r;
	struct cluster_report asked = {.news = CLUSTER_ASKED, .id = 4};
	struct cluster_order joined;
	int answer, fd;

	assert_int_equal(cluster_fetch(&r.read), 0);
	asked.group = take_order(t, CLUSTER_FETCH, &fd).group;
	close(fd);
	report(t, asked);
	while (!t->question)
		uv_run(&t->loop, UV_RUN_ONCE);
	cluster_answer(t->question, r.read.memory_fd, BYTES, &answer);
	close(t->process);
	loop_until_count(&t->loop, &t->n_done, 1);
	assert_int_equal(t->result, -ECONNRESET);
	loop_until_count(&t->loop, &t->n_given, 1);
	assert_ptr_equal(t->given, &answer);
	assert_int_equal(cluster_n_members(t->group), 1);
	assert_int_equal(cluster_fetch(&later.read), -EAGAIN);
	start_process(t); /* and the node joins the group again */
	joined = take_order(t, CLUSTER_JOIN, NULL);
	assert_memory_equal(&joined.group, &asked.group, sizeof(asked.group));
	report_two(t, &asked.group);
	assert_int_equal(cluster_fetch(&later.read), 0);
	close(r.read.memory_fd);
}

static struct cluster_question *question(struct test *t, uint64_t id)
{
	struct cluster_report asked = {.news = CLUSTER_ASKED, .id = id};
	struct registry_group_id text;

	registry_group_id(&job, &text);
	assert_int_equal(net_group_id_parse(&text, &asked.group), 0);
	t->question = NULL;
	report(t, asked);
	while (!t->question)
		uv_run(&t->loop, UV_RUN_ONCE);
	return t->question;
}

TEST_WITH(questions_are_answered, setup, teardown)
{
	struct test *t = *state;
	struct cluster_report stranger = {.news = CLUSTER_ASKED, .id = 8};
	int answer, fd, memory = nameless_file("", 0);

	cluster_answer(question(t, 5), memory, BYTES, &answer);
	struct cluster_order order = take_order(t, CLUSTER_ANSWER, &fd);
	assert_true(order.id == 5 && order.bytes == BYTES && fd >= 0);
	close(fd);
	assert_int_equal(t->n_given, 0);
	report(t, (struct cluster_report){.news = CLUSTER_GIVEN, .id = 5});
	loop_until_count(&t->loop, &t->n_given, 1);
	cluster_refuse(question(t, 6), -EBUSY);
	order = take_order(t, CLUSTER_REFUSE, NULL);
	assert_true(order.id == 6 && order.code == -EBUSY);
	report(t, stranger); /* of a group in which this node is not a member */
	order = take_order(t, CLUSTER_REFUSE, NULL);
	assert_true(order.id == 8 && order.code == -ENOENT);
	close(memory);
}

/* The answer comes after the end of the process that asked. The memory is returned soon, but not from within
 * the call. */
TEST_WITH(answer_comes_too_late, setup, teardown)
{
	struct test *t = *state;
	struct cluster_question *q = question(t, 5);
	int answer, memory = nameless_file("", 0);

	close(t->process);
	loop_until_count(&t->loop, &t->n_changed, 2);
	cluster_answer(q, memory, BYTES, &answer);
	assert_int_equal(t->n_given, 0);
	loop_until_count(&t->loop, &t->n_given, 1);
	start_process(t);
	take_order(t, CLUSTER_JOIN, NULL);
	close(memory);
}

/* cluster_free() runs while everything possible is under way. teardown's loop ends, and sanitizers find no
 * leak. */
TEST_WITH(freed_with_work_under_way, setup, teardown)
{
	struct test *t = *state;
	struct reading r = reading_of(t);
	struct cluster_question *first = question(t, 5), *second = question(t, 6), *third = question(t, 7);
	int answer;

	assert_int_equal(cluster_fetch(&r.read), 0);
	cluster_answer(first, r.read.memory_fd, BYTES, &answer);
	cluster_free(t->cluster);
	t->cluster = NULL;
	assert_int_equal(t->n_given, 1);
	cluster_answer(second, r.read.memory_fd, BYTES, &answer);
	assert_int_equal(t->n_given, 2);
	for (int i = 0; i < 3; i++)
		uv_run(&t->loop, UV_RUN_ONCE);
	cluster_refuse(third, -EIO);
	assert_int_equal(t->n_done, 0);
	close(r.read.memory_fd);
}

TEST_WITH(told_what_matters, setup, teardown)
{
	struct test *t = *state;
	struct cluster_group *again;

	cluster_set_weight(t->group, 1100); /* less than an eighth more, which is not announced */
	cluster_set_weight(t->group, 2000);
	assert_int_equal(take_order(t, CLUSTER_JOIN, NULL).bytes, 2000);
	assert_int_equal(cluster_join(t->cluster, &job, "/data", 1, &(struct owner_lanes){0}, &again), 0);
	assert_ptr_equal(again, t->group);
	cluster_leave(again);
	always(&t->loop);
	assert_false(takes(&(struct taking){.test = t}));
	cluster_leave(t->group);
	take_order(t, CLUSTER_LEAVE, NULL);
}

TEST_WITH(spoilt_is_told, setup, teardown)
{
	struct test *t = *state;
	struct reading r = reading_of(t);
	int fd;

	assert_int_equal(cluster_fetch(&r.read), 0);
	done(t, take_order(t, CLUSTER_FETCH, &fd).id, 0, "");
	loop_until_count(&t->loop, &t->n_done, 1);
	cluster_spoilt(&r.read);
	struct cluster_order order = take_order(t, CLUSTER_SPOILT, NULL);
	assert_true(order.peer == 3 && order.name_hash == owner_hash("b"));
	close(fd);
	close(r.read.memory_fd);
}
