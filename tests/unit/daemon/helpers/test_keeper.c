/* SPDX-License-Identifier: Apache-2.0 */
/* A keeper and its child, as real processes. */
#include "tests/support_loop.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/helpers/keeper.h"

struct fixture {
	uv_loop_t loop;
	uv_timer_t alive; /* keeps the loop alive, which nothing of the keeper does */
	struct keeper keeper;
	uint32_t n_started, n_ended, n_lost;
	struct fork_server_news last;
	char how[96];
};

/* Sends its PID, and ends when its socket does. */
static int run(const struct kept_helper *self)
{
	const pid_t pid = getpid();
	char none;

	if (send(self->fd, &pid, sizeof(pid), 0) != sizeof(pid))
		return 1;
	return recv(self->fd, &none, sizeof(none), 0) == 0 ? 0 : 1;
}

static void on_started(void *user)
{
	struct fixture *f = user;

	f->n_started++;
}

static void on_ended(void *user, const struct fork_server_news *news, const char *how)
{
	struct fixture *f = user;

	f->n_ended++;
	f->last = *news;
	strcpy(f->how, how);
}

static void on_lost(void *user)
{
	struct fixture *f = user;

	f->n_lost++;
}

static void on_alive(uv_timer_t *timer)
{
}

static const struct fork_server_program always = {
    .kind = HELPER_PEER_KEEPER, .keeps = HELPER_PEER, .run = run};
static const struct fork_server_program on_demand = {
    .kind = HELPER_SENSOR_KEEPER, .keeps = HELPER_SENSOR, .run = run, .on_demand = true};

static struct fork_server fork_server[4]; /* forked before a loop exists, as in the daemon */

static struct fixture *begin(struct fork_server *from)
{
	static struct fixture f;
	const struct keeper_handler handler = {
	    .started = on_started, .ended = on_ended, .lost = on_lost, .user = &f};

	memset(&f, 0, sizeof(f));
	uv_loop_init(&f.loop);
	uv_timer_init(&f.loop, &f.alive);
	uv_timer_start(&f.alive, on_alive, 5, 5);
	assert_int_equal(keeper_init(&f.keeper, &f.loop, from, &handler), 0);
	assert_int_equal(from->fd, -EBADF);
	return &f;
}

static void end(struct fixture *f)
{
	keeper_close(&f->keeper, NULL);
	uv_close((uv_handle_t *)&f->alive, NULL);
	loop_end(&f->loop);
}

/* Returns the PID that the process at the link's other end sends. */
static pid_t pid_of(const struct fixture *f)
{
	struct pollfd has = {.fd = f->keeper.link->fd, .events = POLLIN};
	pid_t pid = 0;

	assert_int_equal(poll(&has, 1, 60000), 1);
	assert_int_equal(recv(f->keeper.link->fd, &pid, sizeof(pid), 0), sizeof(pid));
	assert_int_equal(pid, f->keeper.link->pid);
	return pid;
}

TEST(what_dies_is_started_again_with_a_socket_of_its_own)
{
	struct fixture *f = begin(&fork_server[0]);

	loop_until_count(&f->loop, &f->n_started, 1);
	pid_t first = pid_of(f);
	kill(first, SIGKILL);
	loop_until_count(&f->loop, &f->n_ended, 1);
	assert_int_equal(f->last.pid, first);
	assert_string_equal(f->how, "was ended by signal 9 (Killed)");
	loop_until_count(&f->loop, &f->n_started, 2);
	assert_int_not_equal(pid_of(f), first);
	end(f);
}

TEST(what_hangs_is_killed_when_the_keeper_is_told)
{
	struct fixture *f = begin(&fork_server[1]);

	loop_until_count(&f->loop, &f->n_started, 1);
	pid_t pid = pid_of(f);
	kill(pid, SIGSTOP);
	assert_true(keeper_tell(&f->keeper, FORK_SERVER_KILL, pid + 1)); /* the PID of another process */
	assert_true(keeper_tell(&f->keeper, FORK_SERVER_KILL, pid));
	loop_until_count(&f->loop, &f->n_ended, 1);
	assert_int_equal(f->last.status, SIGKILL);
	end(f);
}

TEST(what_is_there_on_demand_ends_when_nobody_wants_it)
{
	struct fixture *f = begin(&fork_server[2]);

	assert_true(keeper_tell(&f->keeper, FORK_SERVER_KEEP, 0));
	loop_until_count(&f->loop, &f->n_started, 1);
	pid_of(f);
	assert_true(keeper_tell(&f->keeper, FORK_SERVER_REST, 0));
	assert_true(
	    keeper_tell(&f->keeper, FORK_SERVER_KEEP, 0)); /* for the next process, after this one's end */
	keeper_drop(&f->keeper);
	loop_until_count(&f->loop, &f->n_ended, 1);
	assert_int_equal(f->last.status, 0);
	loop_until_count(&f->loop, &f->n_started, 2);
	pid_of(f);
	keeper_drop(&f->keeper); /* the process ends by itself, so the keeper does not restart it */
	loop_until_count(&f->loop, &f->n_ended, 2);
	assert_true(keeper_tell(&f->keeper, FORK_SERVER_KEEP, 0));
	loop_until_count(&f->loop, &f->n_started, 3);
	end(f);
}

TEST(the_end_of_a_keeper_is_told)
{
	struct fixture *f = begin(&fork_server[3]);

	kill(f->keeper.fork_server.pid, SIGKILL);
	loop_until_count(&f->loop, &f->n_lost, 1);
	end(f);
}

int main(void)
{
	struct error err;

	for (size_t i = 0; i < 4; i++)
		if (fork_server_spawn(i < 2 ? &always : &on_demand, &fork_server[i], &err) < 0)
			return 1;
	return run_unit_tests(NULL, NULL);
}
