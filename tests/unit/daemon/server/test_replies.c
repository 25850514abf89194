/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libdiesel against a node whose replies come one late, so that each answers the previous request. No wrong
 * data may be delivered, and all of it comes in the end.
 */
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/transport.h"

#define N_SAMPLES 30

static const struct dataset_plan views = {.n_samples = N_SAMPLES, .bytes = 1 << 20, .spread = 128},
				 packed = {.n_samples = N_SAMPLES, .bytes = 64};

/* Sits between libdiesel and the node. On its first session it sends the first SEGMENT_REPLY again instead of
 * the second, the second instead of the third, and so on. */
struct proxy {
	const char *node_socket;
	char *socket;
	int listen_fd;
	pthread_t thread;
	union wire_message late;
	struct wire_fds late_fds;
	bool is_late;
	_Atomic uint32_t n_late;
	_Atomic bool stop;
};

static void answer_late(struct proxy *p, union wire_message *m, struct wire_fds *fds)
{
	union wire_message now = *m;
	struct wire_fds now_fds = {.n = 1};

	now_fds.fd[0] = dup(fds->fd[0]);
	if (p->is_late) {
		wire_fds_close(fds);
		*m = p->late;
		*fds = p->late_fds;
		atomic_fetch_add(&p->n_late, 1);
	}
	p->is_late = true;
	p->late = now;
	p->late_fds = now_fds;
}

/* Forwards a message. Returns whether both ends still exist. */
static bool forward(struct proxy *p, int from, int to, bool late)
{
	struct wire_fds fds = {.n = 0};
	union wire_message m;
	bool ok = transport_receive(from, &m, &fds) == 0;

	if (ok && late && m.header.type == WIRE_SEGMENT_REPLY)
		answer_late(p, &m, &fds);
	ok = ok && transport_send(to, &m, fds.fd, fds.n) == 0;
	wire_fds_close(&fds);
	return ok;
}

struct relay {
	struct proxy *proxy;
	int client, node;
	bool late;
};

static void *relay_run(void *argument)
{
	struct relay *r = argument;
	bool ok = true;

	while (ok) {
		struct pollfd fds[2] = {{.fd = r->client, .events = POLLIN},
					{.fd = r->node, .events = POLLIN}};

		poll(fds, 2, -1);
		if (fds[0].revents)
			ok = forward(r->proxy, r->client, r->node, false);
		if (ok && fds[1].revents)
			ok = forward(r->proxy, r->node, r->client, r->late);
	}
	close(r->client);
	close(r->node);
	return NULL;
}

/* The first connection is the dataset's, the second one the first session's. */
static void *proxy_run(void *argument)
{
	struct proxy *p = argument;
	static struct relay relays[64];
	pthread_t threads[64];
	size_t n = 0;
	int fd;

	while ((fd = accept(p->listen_fd, NULL, NULL)) >= 0 && n < 64 && !atomic_load(&p->stop)) {
		relays[n] = (struct relay){
		    .proxy = p, .client = fd, .node = connect_to(p->node_socket), .late = n == 1};
		pthread_create(&threads[n], NULL, relay_run, &relays[n]);
		n++;
	}
	close(fd);
	for (size_t i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	if (p->is_late)
		wire_fds_close(&p->late_fds);
	return NULL;
}

static void proxy_start(struct proxy *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	p->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	strncpy(address.sun_path, p->socket, sizeof(address.sun_path) - 1);
	assert_int_equal(bind(p->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(p->listen_fd, 8), 0);
	pthread_create(&p->thread, NULL, proxy_run, p);
}

static void proxy_stop(struct proxy *p)
{
	atomic_store(&p->stop, true);
	close(connect_to(p->socket));
	pthread_join(p->thread, NULL);
	close(p->listen_fd);
	free(p->socket);
}

static void read_epoch(struct diesel_session *s, uint32_t *seen, uint32_t *ret_n_errors)
{
	struct diesel_batch b;
	int r;

	*ret_n_errors = 0;
	while ((r = diesel_session_next(s, &b)) != 1) {
		if (r == -EINTR)
			continue;
		if (r < 0) {
			assert_int_equal(r, -EPROTO);
			assert_true(++*ret_n_errors < 10);
			continue;
		}
		for (uint32_t i = 0; i < b.n_items; i++) {
			assert_true(node_item_is_right(&b, i));
			seen[b.items[i].sample]++;
		}
		diesel_batch_release(b.lease);
	}
}

TEST_IN_FOLDER(a_late_reply_is_never_taken_for_another)
{
	const struct diesel_session_options o = {
	    .flags = DIESEL_SHUFFLE, .world = 1, .batch = 2, .reconnect_ms = 10000};
	struct node node = {0};
	struct proxy proxy = {0};
	struct diesel_dataset *d;
	struct diesel_session *s = NULL;
	uint32_t seen[N_SAMPLES] = {0}, n_errors;
	char error[512], *path = make_dataset(*state, "views", &views);

	node_start(&node, *state);
	proxy.node_socket = node.socket;
	proxy.socket = path_in(*state, "p");
	proxy_start(&proxy);
	if (diesel_dataset_open(path, proxy.socket, &d, error, sizeof(error)) < 0 ||
	    diesel_session_open(d, &o, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	read_epoch(s, seen, &n_errors);
	for (int i = 0; i < N_SAMPLES; i++)
		assert_int_equal(seen[i], 1);
	assert_true(atomic_load(&proxy.n_late) > 0);
	assert_int_equal(n_errors, 1);
	diesel_session_close(s);
	diesel_dataset_close(d);
	proxy_stop(&proxy);
	node_stop(&node);
	free(path);
}

static void misnumber(struct node *n, void *index)
{
	n->server.serving.sessions->slots.control->descriptors[1].index = *(uint64_t *)index;
}

TEST_IN_FOLDER(a_batch_that_does_not_come_next_is_not_delivered)
{
	const struct diesel_session_options o = {.world = 1, .batch = 2, .reconnect_ms = 10000};
	struct node node = {0};
	struct diesel_dataset *d;
	struct diesel_session *s = NULL;
	struct diesel_batch b;
	uint32_t seen[N_SAMPLES] = {0}, n_errors;
	char error[512], *path = make_dataset(*state, "packed", &packed);

	node_start(&node, *state);
	if (diesel_dataset_open(path, node.socket, &d, error, sizeof(error)) < 0 ||
	    diesel_session_open(d, &o, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	while (diesel_session_ready(s) < 2)
		usleep(1000);
	node_ask(&node, misnumber, &(uint64_t){7});
	assert_int_equal(diesel_session_next(s, &b), 0);
	seen[b.items[0].sample]++;
	seen[b.items[1].sample]++;
	diesel_batch_release(b.lease);
	b.epoch = UINT64_MAX;
	assert_int_equal(diesel_session_next(s, &b), -EPROTO);
	assert_int_equal(b.epoch, UINT64_MAX); /* no error of a batch: the same one is requested again */
	assert_string_equal(diesel_session_error(s),
			    "dieseld published batch 7 of epoch 0, expected batch 1 of epoch 0");
	read_epoch(s, seen, &n_errors);
	assert_int_equal(n_errors, 0);
	for (int i = 0; i < N_SAMPLES; i++)
		assert_int_equal(seen[i], 1);
	diesel_session_close(s);
	diesel_dataset_close(d);
	node_stop(&node);
	free(path);
}
