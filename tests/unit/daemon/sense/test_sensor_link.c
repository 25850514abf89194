/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's messages to the sensing child and its keeper. The test plays both. */
#include "tests/support_loop.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/fd_message.h"
#include "daemon/sense/sensor_private.h"

struct fixture {
	uv_loop_t loop;
	struct sensor sensor;
	int keeper, child; /* the test's ends of the sockets */
};

static int begin(void **state)
{
	static struct fixture f;
	struct keeper_handler handler = link_handler;
	struct fork_server fork_server = FORK_SERVER_NONE;
	int ends[2];

	socket_pair(ends);
	fork_server.fd = ends[0];
	f = (struct fixture){
	    .sensor = {.state = CHILD_IDLE, .running = true}, .keeper = ends[1], .child = -1};
	assert_int_equal(uv_loop_init(&f.loop), 0);
	handler.user = &f.sensor;
	assert_int_equal(keeper_init(&f.sensor.keeper, &f.loop, &fork_server, &handler), 0);
	uv_ref((uv_handle_t *)&f.sensor.keeper.poll); /* nothing else of the sensor keeps a loop alive */
	*state = &f;
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;

	keeper_close(&f->sensor.keeper, NULL);
	loop_end(&f->loop);
	close(f->keeper);
	close(f->child);
	return 0;
}

/* Returns the verb that the keeper receives next; 0: none. */
static uint32_t told(const struct fixture *f)
{
	struct fork_server_order order;

	return recv(f->keeper, &order, sizeof(order), MSG_DONTWAIT) == sizeof(order) ? order.verb : 0;
}

/* Returns the request that the child receives next; 0: none; UINT32_MAX: the end. */
static uint32_t heard(const struct fixture *f)
{
	struct sensor_request request;
	ssize_t n = recv(f->child, &request, sizeof(request), MSG_DONTWAIT);

	return n == 0 ? UINT32_MAX : n == sizeof(request) ? request.type : 0;
}

static void keeper_says(struct fixture *f, struct fork_server_news news, const int *fd)
{
	assert_int_equal(fd_message_send(f->keeper, &news, sizeof(news), fd, fd ? 1 : 0, 0), 0);
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void start_child(struct fixture *f, pid_t pid)
{
	int ends[2];

	socket_pair(ends);
	close(f->child);
	f->child = ends[1];
	keeper_says(f, (struct fork_server_news){.pid = pid}, &ends[0]);
	close(ends[0]);
}

static void say(struct fixture *f, struct sensor_reply reply)
{
	assert_int_equal(send(f->child, &reply, sizeof(reply), 0), sizeof(reply));
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void say_ready(struct fixture *f)
{
	say(f, (struct sensor_reply){.type = SENSOR_READY});
}

static void begin_watching(struct fixture *f)
{
	assert_false(link_tick(&f->sensor, 2 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	start_child(f, 5);
	say_ready(f);
	assert_true(f->sensor.told.active);
}

TEST_WITH(a_watcher_comes_and_goes, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(link_tick(s, 2 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	start_child(f, 5);
	assert_false(link_tick(s, 3 * NS_PER_S)); /* the child still loads its programs */
	assert_int_equal(told(f), 0);
	assert_int_equal(heard(f), 0);
	say_ready(f);
	assert_true(s->told.active);
	assert_true(link_tick(s, 4 * NS_PER_S));
	assert_int_equal(heard(f), SENSOR_TICK);
	link_stop(s);
	assert_int_equal(told(f), FORK_SERVER_REST);
	assert_int_equal(heard(f), UINT32_MAX);
	assert_false(s->told.active);
}

/* The keeper starts another child as soon as this one has ended. */
TEST_WITH(the_next_job_need_not_wait_for_the_last_watcher_s_end, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	begin_watching(f);
	link_stop(s);
	assert_int_equal(told(f), FORK_SERVER_REST);
	assert_false(link_tick(s, 5 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	keeper_says(f, (struct fork_server_news){.pid = 5}, NULL);
	assert_int_equal(s->state, CHILD_STARTING);
	start_child(f, 6);
	say_ready(f);
	assert_int_equal(s->state, CHILD_WATCHING);
	assert_int_equal(s->told.n_restarts, 0);
}

/* Loading the programs would take CPU time from a job's first batches. */
TEST_WITH(the_first_job_is_left_alone_at_first, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	s->woken_ns = NS_PER_S;
	assert_false(link_tick(s, 2 * NS_PER_S));
	assert_int_equal(told(f), 0);
	assert_false(link_tick(s, 3 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
}

/* Loading takes a while on a busy machine, and meanwhile the last job may have ended. */
TEST_WITH(a_watcher_that_comes_too_late_ends, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(link_tick(s, 2 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	start_child(f, 5);
	s->running = false;
	link_stop(s);
	say_ready(f);
	assert_int_equal(heard(f), UINT32_MAX);
	assert_false(s->told.active);
	keeper_says(f, (struct fork_server_news){.pid = 5}, NULL);
	assert_int_equal(s->state, CHILD_IDLE);
	assert_int_equal(s->told.n_restarts, 0);
}

/* The next job may also have begun. */
TEST_WITH(a_watcher_that_is_needed_again_stays, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(link_tick(s, 2 * NS_PER_S));
	start_child(f, 5);
	s->running = false;
	link_stop(s);
	s->running = true;
	assert_false(link_tick(s, 3 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	say_ready(f);
	assert_int_equal(heard(f), 0);
	assert_true(s->told.active);
	assert_true(link_tick(s, 4 * NS_PER_S));
}

TEST_WITH(a_watcher_that_dies_is_replaced_by_its_keeper, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	begin_watching(f);
	keeper_says(f, (struct fork_server_news){.pid = 5, .status = SIGKILL}, NULL);
	assert_false(s->told.active);
	assert_int_equal(s->told.n_restarts, 1);
	assert_non_null(strstr(s->told.why, "was ended by signal 9"));
	assert_false(link_tick(s, 3 * NS_PER_S));
	assert_int_equal(told(f), 0);
	start_child(f, 6);
	say_ready(f);
	assert_true(s->told.active);
	assert_string_equal(s->told.why, "");
}

/* The child's last message counts, though its keeper's message comes first. */
TEST_WITH(a_watcher_that_may_not_load_programs_is_not_tried_again, begin, end)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;
	const struct sensor_reply refused = {.type = SENSOR_REFUSED, .code = -EPERM, .why = "no right"};

	assert_false(link_tick(s, 2 * NS_PER_S));
	assert_int_equal(told(f), FORK_SERVER_KEEP);
	start_child(f, 5);
	assert_int_equal(send(f->child, &refused, sizeof(refused), 0), sizeof(refused));
	keeper_says(f, (struct fork_server_news){.pid = 5}, NULL);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(s->state, CHILD_IDLE);
	assert_int_equal(s->told.n_restarts, 0);
	assert_non_null(strstr(s->told.why, "no right"));
	assert_false(link_tick(s, UINT64_MAX / 2));
	assert_int_equal(told(f), 0);
}
