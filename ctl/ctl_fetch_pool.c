/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_fetch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/transport.h"
#include "dataset/chunk_id.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"

/* One for each piece of landing memory, and some more for samples that are asked for by number. */
#define N_THREADS     (WIRE_LANDINGS + 4)
#define SUFFIX        ".chunk"
#define LANDING_BYTES ((size_t)WIRE_LANDINGS * WIRE_LANDING_BYTES)
#define PIECE_BYTES   ((size_t)1 << 20) /* of a request */

struct fetch_link {
	_Atomic unsigned refs;
	int socket;
	unsigned char *landing;
};

struct task {
	struct task *next;
	struct fetch_link *link; /* NULL: a request */
	struct wire_fetch order;
	struct fetch_request request;
	int socket; /* of a request */
};

struct fetch_pool {
	struct store *store;
	pthread_mutex_t lock;
	pthread_cond_t any;
	struct task *first, **last;
};

int fetch_link_new(int socket, int memory_fd, struct fetch_link **ret)
{
	struct fetch_link *link = calloc(1, sizeof(*link));

	if (!link)
		return -ENOMEM;
	link->landing = mmap(NULL, LANDING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
	if (link->landing == MAP_FAILED) {
		free(link);
		return -errno;
	}
	link->refs = 1;
	link->socket = socket;
	*ret = link;
	return 0;
}

int fetch_link_socket(const struct fetch_link *link)
{
	return link->socket;
}

void fetch_link_unref(struct fetch_link *link)
{
	if (atomic_fetch_sub(&link->refs, 1) > 1)
		return;
	munmap(link->landing, LANDING_BYTES);
	close(link->socket);
	free(link);
}

static int parse_object(const char *object, struct chunk_id *ret, struct error *err)
{
	char text[CHUNK_ID_TEXT];

	if (strlen(object) == CHUNK_ID_TEXT - 1 + strlen(SUFFIX) &&
	    strcmp(object + CHUNK_ID_TEXT - 1, SUFFIX) == 0) {
		memcpy(text, object, CHUNK_ID_TEXT - 1);
		text[CHUNK_ID_TEXT - 1] = '\0';
		if (chunk_id_parse(text, ret) == 0)
			return 0;
	}
	return error_set(err, -EINVAL, "what is asked for is no chunk");
}

/* Whether the object is there for us, as it was. */
static int look(struct store *store, const struct wire_fetch *o, const struct chunk_id *id, struct error *err)
{
	char name[STORE_NAME_MAX];
	uint64_t bytes;
	int r = store_size(store, id, &bytes, err);

	if (r == 0 && bytes != o->size)
		return error_set(err, -EBADMSG, "%s has %llu bytes instead of %llu: truncated or replaced",
				 store_describe(store, id, name), (unsigned long long)bytes,
				 (unsigned long long)o->size);
	return r;
}

static void run_order(struct fetch_pool *pool, struct fetch_link *link, const struct wire_fetch *o)
{
	struct error err = ERROR_INIT;
	struct chunk_id id;
	union wire_message answer;
	int r = parse_object(o->object, &id, &err);

	if (r == 0)
		r = o->bytes == 0
			? look(pool->store, o, &id, &err)
			: store_read(pool->store, &id, o->offset,
				     link->landing + (size_t)o->landing * WIRE_LANDING_BYTES, o->bytes, &err);
	protocol_init(&answer, WIRE_FETCHED);
	answer.fetched.landing = o->landing;
	answer.fetched.result = r;
	if (r < 0)
		snprintf(answer.fetched.text, sizeof(answer.fetched.text), "%s", err.text);
	/* If the daemon is gone, poll() sees that. */
	(void)transport_send(link->socket, &answer, NULL, 0);
}

static int send_all(int socket, const void *data, size_t bytes)
{
	const char *from = data;

	while (bytes > 0) {
		ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		from += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* The first piece says how it went; whoever reads notices if there are fewer bytes than asked for. */
static void run_request(struct fetch_pool *pool, const struct fetch_request *q, int socket)
{
	_cleanup_(freep) void *buffer = malloc(PIECE_BYTES);
	struct fetch_reply reply = {0};
	struct error err = ERROR_INIT;
	struct chunk_id id;
	int r = buffer ? parse_object(q->object, &id, &err) : error_errno(&err, -ENOMEM, "cannot read");

	for (uint64_t done = 0; r == 0 && (done < q->bytes || done == 0); done += PIECE_BYTES) {
		size_t n = q->bytes - done < PIECE_BYTES ? (size_t)(q->bytes - done) : PIECE_BYTES;

		r = store_read(pool->store, &id, q->offset + done, buffer, n, &err);
		if (r < 0 && done > 0)
			return;
		if (r == 0 && done == 0)
			r = send_all(socket, &reply, sizeof(reply));
		if (r == 0)
			r = send_all(socket, buffer, n);
		else
			break;
		if (r < 0)
			return;
	}
	if (r == 0)
		return;
	reply.result = r;
	snprintf(reply.text, sizeof(reply.text), "%s", err.text[0] ? err.text : strerror(-r));
	(void)send_all(socket, &reply, sizeof(reply));
}

static void *work(void *user)
{
	struct fetch_pool *pool = user;

	for (;;) {
		struct task *t;

		pthread_mutex_lock(&pool->lock);
		while (!pool->first)
			pthread_cond_wait(&pool->any, &pool->lock);
		t = pool->first;
		pool->first = t->next;
		if (!pool->first)
			pool->last = &pool->first;
		pthread_mutex_unlock(&pool->lock);
		if (t->link) {
			run_order(pool, t->link, &t->order);
			fetch_link_unref(t->link);
		} else {
			run_request(pool, &t->request, t->socket);
			close(t->socket);
		}
		free(t);
	}
	return NULL;
}

static void add(struct fetch_pool *pool, struct task *t)
{
	pthread_mutex_lock(&pool->lock);
	*pool->last = t;
	pool->last = &t->next;
	pthread_cond_signal(&pool->any);
	pthread_mutex_unlock(&pool->lock);
}

/* Whoever waits for an answer sees the end of this process. */
static struct task *task_new(void)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		_exit(1);
	return t;
}

void fetch_pool_order(struct fetch_pool *pool, struct fetch_link *link, const struct wire_fetch *order)
{
	struct task *t = task_new();

	atomic_fetch_add(&link->refs, 1);
	t->link = link;
	t->order = *order;
	add(pool, t);
}

void fetch_pool_read(struct fetch_pool *pool, const struct fetch_request *request, int socket)
{
	struct task *t = task_new();

	t->request = *request;
	t->socket = socket;
	add(pool, t);
}

int fetch_pool_new(struct store *store, struct fetch_pool **ret)
{
	struct fetch_pool *pool = calloc(1, sizeof(*pool));
	pthread_t thread;

	if (!pool)
		return -ENOMEM;
	pool->store = store;
	pool->last = &pool->first;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->any, NULL);
	for (unsigned i = 0; i < N_THREADS; i++) {
		int r = pthread_create(&thread, NULL, work, pool);

		if (r != 0 && i == 0)
			return -r;
		if (r == 0)
			pthread_detach(thread);
	}
	*ret = pool;
	return 0;
}
