/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions whose socket and process do not end together. Memory that a live process holds stays, and memory
 * of a dead process is released, whichever process has its socket.
 */
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_SAMPLES 60
#define N_HELD    2

static const struct diesel_session_options options = {
    .flags = DIESEL_SHUFFLE, .world = 1, .batch = 2, .window_chunks = 1, .reconnect_ms = 10000};

/* Ends every connection of this process to the node. */
static void cut_connections(const struct node *n)
{
	for (int fd = 3; fd < 1024; fd++) {
		struct sockaddr_un peer = {0};
		socklen_t size = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sun_family == AF_UNIX &&
		    strcmp(peer.sun_path, n->socket) == 0)
			shutdown(fd, SHUT_RDWR);
	}
}

struct look {
	uint32_t n_connections;
	bool any_session, orphaned; /* of the latest session */
	uint64_t need_bytes;
};

static void look(struct node *n, void *answer)
{
	const struct session *q = n->server.serving.sessions;

	*(struct look *)answer = (struct look){.n_connections = n->server.n_connections,
					       .any_session = q != NULL,
					       .orphaned = q && q->orphaned,
					       .need_bytes = q ? q->need_bytes : 0};
}

static struct look look_at(struct node *n)
{
	struct look now;

	node_ask(n, look, &now);
	return now;
}

struct wanted {
	struct node *node;
	uint32_t n_connections;
	uint64_t need_bytes;
};

static bool has_connections(void *user)
{
	const struct wanted *w = user;

	return look_at(w->node).n_connections == w->n_connections;
}

static void wait_for_connections(struct node *n, uint32_t wanted)
{
	wait_until(has_connections, &(struct wanted){.node = n, .n_connections = wanted});
}

static bool has_orphan(void *user)
{
	return look_at(user).orphaned;
}

/* Waits until the server knows that the only session's connection is over. */
static void wait_for_orphan(struct node *n)
{
	wait_for_connections(n, 1);
	wait_until(has_orphan, n);
}

static bool needs_less(void *user)
{
	const struct wanted *w = user;

	return look_at(w->node).need_bytes < w->need_bytes;
}

/* Waits until the server keeps space only for held batches. */
static void wait_for_need_below(struct node *n, uint64_t bytes)
{
	wait_until(needs_less, &(struct wanted){.node = n, .need_bytes = bytes});
}

static void open_both(const struct node *n, const char *path, struct diesel_dataset **d,
		      struct diesel_session **s)
{
	char error[512];

	if (diesel_dataset_open(path, n->socket, d, error, sizeof(error)) < 0 ||
	    diesel_session_open(*d, &options, s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
}

static int next_batch(struct diesel_session *s, struct diesel_batch *ret)
{
	int r;

	while ((r = diesel_session_next(s, ret)) == -EINTR)
		;
	if (r < 0)
		fail_msg("%s", diesel_session_error(s));
	return r;
}

static void assert_right(const struct diesel_batch *b)
{
	for (uint32_t i = 0; i < b->n_items; i++)
		assert_true(node_item_is_right(b, i));
}

/* Reads an epoch, so that every chunk passes through the small cache. */
static void read_epoch(struct diesel_session *s, uint32_t *seen)
{
	struct diesel_batch b;

	while (next_batch(s, &b) == 0) {
		assert_right(&b);
		for (uint32_t i = 0; i < b.n_items && seen; i++)
			seen[b.items[i].sample]++;
		diesel_batch_release(b.lease);
	}
}

static void hold_across_a_cut(void **state, bool equal)
{
	struct node n = {.cache_bytes = 48 * NODE_MIB};
	char *path = make_dataset(
	    *state, "data",
	    &(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 1 << 20, .spread = equal ? 0 : 128});
	struct diesel_dataset *d, *other_d;
	struct diesel_session *s, *other;
	struct diesel_batch held[N_HELD];
	uint32_t seen[N_SAMPLES] = {0};
	uint64_t need_bytes;

	node_start(&n, *state);
	open_both(&n, path, &d, &s);
	for (int i = 0; i < N_HELD; i++) {
		assert_int_equal(next_batch(s, &held[i]), 0);
		for (uint32_t k = 0; k < held[i].n_items; k++)
			seen[held[i].items[k].sample]++;
	}
	/* Ensures that some batches are ready when the connection ends. */
	while (diesel_session_ready(s) == 0)
		usleep(1000);
	need_bytes = look_at(&n).need_bytes;
	cut_connections(&n);
	wait_for_orphan(&n);
	wait_for_need_below(&n, need_bytes);
	open_both(&n, path, &other_d, &other);
	for (int epoch = 0; epoch < 2; epoch++)
		read_epoch(other, NULL);
	diesel_session_close(other);
	diesel_dataset_close(other_d);
	for (int i = 0; i < N_HELD; i++)
		assert_right(&held[i]);
	/* The session continues at its position. Ready batches are not lost, and no batch comes from memory
	 * that is gone. */
	read_epoch(s, seen);
	for (int i = 0; i < N_SAMPLES; i++)
		assert_int_equal(seen[i], 1);
	for (int i = 0; i < N_HELD; i++) {
		assert_right(&held[i]);
		diesel_batch_release(held[i].lease);
	}
	wait_for_connections(&n, 1); /* the new session's connection; the old one is gone now */
	diesel_session_close(s);
	diesel_dataset_close(d);
	wait_for_connections(&n, 0);
	node_stop(&n); /* the last worker is done */
	assert_int_equal(n.server.serving.cache.slot_bytes, 0);
	free(path);
}

TEST_IN_FOLDER(views_stay_when_the_socket_ends)
{
	hold_across_a_cut(state, false);
}

TEST_IN_FOLDER(packed_batches_stay_when_the_socket_ends)
{
	hold_across_a_cut(state, true);
}

/* A trainer in a process of its own. It takes a batch, and ends its connections if `cut`. Then it forks a
 * child that inherits all of it, reports that, and both wait. The child ends when the test closes the
 * pipe. */
struct trainer {
	pid_t pid;
	int hold, ready;
};

static struct trainer trainer_start(const struct node *n, const char *path, bool cut)
{
	int hold[2], ready[2];
	char byte;

	assert_int_equal(pipe(hold) | pipe(ready), 0);
	struct trainer t = (struct trainer){.pid = fork(), .hold = hold[1], .ready = ready[0]};
	if (t.pid == 0) {
		struct diesel_dataset *d;
		struct diesel_session *s;
		struct diesel_batch b;

		close(hold[1]);
		close(ready[0]);
		open_both(n, path, &d, &s);
		next_batch(s, &b);
		if (cut)
			cut_connections(n);
		if (fork() != 0)
			(void)!write(ready[1], "x", 1);
		(void)!read(hold[0], &byte, 1);
		_exit(0);
	}
	close(hold[0]);
	close(ready[1]);
	assert_int_equal(read(t.ready, &byte, 1), 1);
	return t;
}

static void trainer_end(struct trainer *t)
{
	close(t->hold);
	close(t->ready);
}

static void end_with_the_trainer(void **state, bool cut)
{
	struct node n = {0};
	char *path = make_dataset(
	    *state, "views", &(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 1 << 10, .spread = 128});

	node_start(&n, *state);
	struct trainer t = trainer_start(&n, path, cut);
	if (cut)
		wait_for_orphan(&n);
	else
		wait_for_connections(&n, 2);
	kill(t.pid, SIGKILL);
	assert_int_equal(waitpid(t.pid, NULL, 0), t.pid);
	/* the dataset's connection costs nothing, and ends with its last holder */
	wait_for_connections(&n, cut ? 0 : 1);
	assert_false(look_at(&n).any_session);
	trainer_end(&t);
	wait_for_connections(&n, 0);
	node_stop(&n);
	free(path);
}

TEST_IN_FOLDER(a_child_does_not_keep_the_session_of_a_killed_trainer)
{
	end_with_the_trainer(state, false);
}

TEST_IN_FOLDER(what_is_held_without_a_socket_ends_with_the_process)
{
	end_with_the_trainer(state, true);
}
