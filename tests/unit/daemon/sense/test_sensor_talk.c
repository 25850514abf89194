/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon says to the sensing child, whose part the test plays. */
#include "tests/support.h"

#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "daemon/sense/sensor_private.h"

struct fixture {
	struct sensor sensor;
	int child; /* its end of the socket */
};

static int begin(void **state)
{
	static struct fixture f;
	int ends[2];

	socket_pair(ends);
	f = (struct fixture){.sensor = {.child = {.fd = ends[0]}, .state = CHILD_IDLE, .running = true},
			     .child = ends[1]};
	*state = &f;
	return 0;
}

static int end(void **state)
{
	struct fixture *f = *state;

	close(f->sensor.child.fd);
	close(f->child);
	return 0;
}

/* What the child hears next; 0: nothing. */
static uint32_t heard(const struct fixture *f)
{
	struct sensor_request request;

	return recv(f->child, &request, sizeof(request), MSG_DONTWAIT) == sizeof(request) ? request.type : 0;
}

static void say(struct fixture *f, enum sensor_reply_type type)
{
	const struct sensor_reply reply = {.type = type};

	assert_int_equal(send(f->child, &reply, sizeof(reply), 0), sizeof(reply));
	talk_readable(&f->sensor);
}

static void test_a_watcher_comes_and_goes(void **state)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(talk_tick(s, 1));
	assert_int_equal(heard(f), SENSOR_START);
	assert_false(talk_tick(s, 2)); /* it is still loading */
	assert_int_equal(heard(f), 0);
	say(f, SENSOR_READY);
	assert_true(s->told.active);
	assert_true(talk_tick(s, 3));
	assert_int_equal(heard(f), SENSOR_TICK);
	talk_stop(s);
	assert_int_equal(heard(f), SENSOR_STOP);
	assert_false(s->told.active);
	assert_false(talk_tick(s, 4)); /* another one is started when this one has ended */
	assert_int_equal(heard(f), 0);
	say(f, SENSOR_GONE);
	assert_false(talk_tick(s, 5));
	assert_int_equal(heard(f), SENSOR_START);
}

/* Loading the programs would take the CPU from a job's first batches. */
static void test_the_first_job_is_left_alone_at_first(void **state)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	talk_begin(s, NS_PER_S);
	assert_false(talk_tick(s, NS_PER_S));
	assert_int_equal(heard(f), 0);
	assert_false(talk_tick(s, 2 * NS_PER_S));
	assert_int_equal(heard(f), SENSOR_START);
}

/* Loading takes a while on a busy machine: by then the last job may have ended. */
static void test_a_watcher_that_comes_too_late_ends(void **state)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(talk_tick(s, 1));
	assert_int_equal(heard(f), SENSOR_START);
	s->running = false;
	talk_stop(s);
	say(f, SENSOR_READY);
	assert_int_equal(heard(f), SENSOR_STOP);
	assert_false(s->told.active);
	say(f, SENSOR_GONE);
	assert_int_equal(s->state, CHILD_IDLE);
	assert_int_equal(s->told.n_restarts, 0);
}

/* Or the next one may have begun. */
static void test_a_watcher_that_is_needed_again_stays(void **state)
{
	struct fixture *f = *state;
	struct sensor *s = &f->sensor;

	assert_false(talk_tick(s, 1));
	s->running = false;
	talk_stop(s);
	s->running = true;
	assert_false(talk_tick(s, 2));
	assert_int_equal(heard(f), SENSOR_START);
	say(f, SENSOR_READY);
	assert_int_equal(heard(f), 0);
	assert_true(s->told.active);
	assert_true(talk_tick(s, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_watcher_comes_and_goes, begin, end),
	    cmocka_unit_test_setup_teardown(test_the_first_job_is_left_alone_at_first, begin, end),
	    cmocka_unit_test_setup_teardown(test_a_watcher_that_comes_too_late_ends, begin, end),
	    cmocka_unit_test_setup_teardown(test_a_watcher_that_is_needed_again_stays, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
