/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl fetch: reads a dataset in a bucket for dieseld and for the job that started it
 * (client/fetch_channel.h), with the rights, credentials and network access of the job's user. */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/fetch_channel.h"
#include "client/transport.h"
#include "dataset/chunk_id.h"
#include "dataset/compress.h"
#include "dataset/backend.h"
#include "dataset/remote.h"
#include "dataset/snapshot.h"
#include "dataset/snapshot_retained.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/fd_message.h"

/* Number of threads that read from the bucket, each one range at a time: one per piece of landing memory, and
 * some more for samples requested by number. */
#define N_THREADS     (WIRE_LANDINGS + 4)
#define SUFFIX        ".chunk"
#define LANDING_BYTES ((size_t)WIRE_LANDINGS * WIRE_LANDING_BYTES)
#define PIECE_BYTES   ((size_t)1 << 20) /* maximum size of one piece of a reply */

/* A connection to the daemon and its landing memory. Reference-counted: each order holds a reference. */
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
	int socket; /* socket of a request */
};

struct fetch_pool {
	struct store *store;
	pthread_mutex_t lock;
	pthread_cond_t any;
	struct task *first, **last;
};

/* Takes ownership of the socket, but not of the memory's descriptor. -ENOMEM or another negative errno. */
static int fetch_link_new(int socket, int memory_fd, struct fetch_link **ret)
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

static void fetch_link_unref(struct fetch_link *link)
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
	return error_set(err, -EINVAL, "the requested object is not a chunk");
}

/* Checks that the object is readable and unchanged. */
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
	/* If the daemon is gone, poll() reports that. */
	(void)transport_send(link->socket, &answer, NULL, 0);
}

/* Sends the reply in pieces. The first has the result; the peer detects a short reply by its length. */
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
			r = fd_send(socket, &reply, sizeof(reply));
		if (r == 0)
			r = fd_send(socket, buffer, n);
		else
			break;
		if (r < 0)
			return;
	}
	if (r == 0)
		return;
	reply.result = r;
	snprintf(reply.text, sizeof(reply.text), "%s", err.text[0] ? err.text : strerror(-r));
	(void)fd_send(socket, &reply, sizeof(reply));
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

/* Returns a new task. Exits if memory runs out: peers that wait for an answer then see the end of this
 * process. */
static struct task *task_new(void)
{
	struct task *t = calloc(1, sizeof(*t));

	if (!t)
		_exit(1);
	return t;
}

/* Queues a read into the landing memory, which ends with a reply. */
static void fetch_pool_order(struct fetch_pool *pool, struct fetch_link *link, const struct wire_fetch *order)
{
	struct task *t = task_new();

	atomic_fetch_add(&link->refs, 1);
	t->link = link;
	t->order = *order;
	add(pool, t);
}

/* Reads for the client at this socket, and takes ownership of the socket. */
static void fetch_pool_read(struct fetch_pool *pool, const struct fetch_request *request, int socket)
{
	struct task *t = task_new();

	t->request = *request;
	t->socket = socket;
	add(pool, t);
}

/* Borrows the store until the process ends, like the pool itself. -ENOMEM, -EAGAIN. */
static int fetch_pool_new(struct store *store, struct fetch_pool **ret)
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

#define CHANNEL      STDIN_FILENO
#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 2000

struct fetch_run {
	const char *url, *socket_path;
	uint64_t version;    /* 0: the newest */
	struct place *place; /* stays open until the end, because it holds the folder */
	struct store *store;
	int dir_fd, snapshot_fd;
	int copy_fd; /* holds the copy of another user's snapshot */
	struct fetch_pool *pool;
};

static int say(int result, const char *text, const int *fds, size_t n_fds)
{
	struct fetch_reply reply = {.result = result};

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	return fd_message_send(CHANNEL, &reply, sizeof(reply), fds, n_fds, 0);
}

/* The daemon gets chunks decompressed: the process that reads for it also decompresses for it. */
static int make_plain(struct fetch_run *f, struct error *err)
{
	struct snapshot *s;
	int r = snapshot_open_fd(f->snapshot_fd, f->url, &s, err);

	if (r < 0)
		return r;
	r = store_of_snapshot(f->store, snapshot_info(s), compress_decode, &f->store, err);
	snapshot_close(s);
	return r;
}

static int open_in(const char *folder, struct fetch_run *f, struct error *err)
{
	f->dir_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->snapshot_fd =
	    f->dir_fd < 0 ? -EBADF : openat(f->dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (f->snapshot_fd < 0)
		return error_errno(err, -errno, "cannot open %s/" SNAPSHOT_FILE, folder);
	return 0;
}

/* Opens the snapshot of a dataset in a folder; of another user's, a copy. */
static int open_folder(struct fetch_run *f, struct error *err)
{
	_cleanup_(freep) char *copy = NULL;
	struct stat st;
	int r = 0;

	if (f->place->dir_fd < 0)
		return error_errno(err, f->place->dir_fd, "cannot open %s", f->url);
	f->dir_fd = fcntl(f->place->dir_fd, F_DUPFD_CLOEXEC, 0);
	if (f->version)
		r = snapshot_retained_open(f->dir_fd, f->url, f->version, &f->snapshot_fd, err);
	else
		f->snapshot_fd = openat(f->dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (r < 0)
		return r;
	if (f->snapshot_fd < 0 || fstat(f->snapshot_fd, &st) < 0)
		return error_errno(err, -errno, "cannot open %s/" SNAPSHOT_FILE, f->url);
	if (st.st_uid == geteuid())
		return 0;
	r = snapshot_private_copy(f->url, f->snapshot_fd, &copy, &f->copy_fd, err);
	if (r < 0)
		return r;
	close(f->dir_fd);
	close(f->snapshot_fd);
	return open_in(copy, f, err);
}

static int open_snapshot(struct fetch_run *f, struct error *err)
{
	int r = backend_open_version(f->url, f->version, &f->place, err);

	if (r == 0)
		r = backend_store(f->place, false, &f->store, err);
	if (r == 0)
		r = f->place->ops ? open_in(f->place->folder, f, err) : open_folder(f, err);
	return r < 0 ? r : make_plain(f, err);
}

/* Opens the connection on which orders arrive from now on. */
static int attach(const struct fetch_run *f, struct transport *t, struct fetch_link **ret, struct error *err)
{
	union wire_message request, reply;
	struct wire_fds fds = {.n = 0};
	int r;

	protocol_init(&request, WIRE_OPEN_DATASET);
	request.open_dataset.flags = WIRE_DATASET_FETCHED;
	r = transport_call(t, &request, &(struct wire_fds){{f->dir_fd, f->snapshot_fd}, 2},
			   WIRE_DATASET_REPLY, &reply, NULL, err);
	if (r == 0) {
		protocol_init(&request, WIRE_FETCHER);
		r = transport_call(t, &request, NULL, WIRE_FETCHER_REPLY, &reply, &fds, err);
	}
	if (r == 0) {
		r = fetch_link_new(t->fd, fds.fd[0], ret);
		if (r < 0)
			error_errno(err, r, "cannot map the memory to read into");
		else
			t->fd = -EBADF;
		wire_fds_close(&fds);
	}
	return r;
}

static int greet(const char *socket_path, struct transport *ret, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	int r = transport_connect(socket_path, &t, err);

	if (r == 0)
		r = transport_hello(&t, err);
	if (r < 0)
		transport_close(&t);
	else
		*ret = t;
	return r;
}

/* Serves the requests that arrive. Returns false when the other end of the channel is closed. */
static bool serve_channel(struct fetch_run *f)
{
	struct fetch_request request;
	int fds[FD_MESSAGE_MAX_FDS], n;
	size_t n_fds;

	n = fd_message_receive(CHANNEL, &request, sizeof(request), MSG_DONTWAIT, fds, &n_fds);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n == sizeof(request) && n_fds == 1) {
		request.object[sizeof(request.object) - 1] = '\0';
		fetch_pool_read(f->pool, &request, fds[0]);
		return true;
	}
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		closep(&fds[i]);
	return n > 0;
}

/* Returns false when the daemon is gone. */
static bool serve_daemon(struct fetch_run *f, struct fetch_link *link)
{
	union wire_message m;
	struct wire_fds fds;
	int r = transport_receive(link->socket, &m, &fds);

	if (r < 0)
		return r == -EAGAIN || r == -EINTR;
	wire_fds_close(&fds);
	if (m.header.type != WIRE_FETCH)
		return false;
	fetch_pool_order(f->pool, link, &m.fetch);
	return true;
}

/* Returns 0 if the channel has ended, or -ECONNRESET if the daemon has. */
static int serve(struct fetch_run *f, struct fetch_link *link)
{
	for (;;) {
		struct pollfd p[2] = {{.fd = CHANNEL, .events = POLLIN},
				      {.fd = link->socket, .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents && !serve_channel(f))
			return 0;
		if (p[1].revents && !serve_daemon(f, link))
			return -ECONNRESET;
	}
}

/* Waits for a new daemon after the old one has exited. Sessions continue with the new one. Returns 0, or
 * -ECONNRESET: the channel has ended. */
static int reach_again(struct fetch_run *f, struct fetch_link **ret)
{
	for (int pause_ms = PAUSE_MIN_MS;;
	     pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS) {
		struct pollfd p = {.fd = CHANNEL, .events = POLLIN};
		struct transport t = TRANSPORT_INIT;
		int r = greet(f->socket_path, &t, NULL);

		if (r == 0)
			r = attach(f, &t, ret, NULL);
		transport_close(&t);
		if (r == 0)
			return 0;
		if (poll(&p, 1, pause_ms) > 0 && !serve_channel(f))
			return -ECONNRESET;
	}
}

static int begin(struct fetch_run *f, struct fetch_link **ret, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	int r = greet(f->socket_path, &t,
		      err); /* first, because the process that starts the daemon waits for this result */

	if (r == 0)
		r = open_snapshot(f, err);
	if (r == 0)
		r = fetch_pool_new(f->store, &f->pool);
	if (r == 0)
		r = attach(f, &t, ret, err);
	transport_close(&t);
	return r;
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct fetch_run f = {.dir_fd = -EBADF, .snapshot_fd = -EBADF};
	struct error err = ERROR_INIT;
	struct fetch_link *link = NULL;
	int status, r;

	if (!ctl_options(verb, argc, argv, &f, &status))
		return status;
	if (argc != optind + 1 || !f.socket_path)
		return ctl_usage(verb, "expected --socket and the URL of a dataset");
	if (!ctl_is_started_by_program(SOCK_SEQPACKET))
		return ctl_usage(verb,
				 "a job starts this command when it opens a dataset in a bucket: do not "
				 "run it by hand");
	f.url = argv[optind];
	r = chdir("/") < 0 ? -errno : ctl_detach(); /* so that no file system stays busy */
	if (r < 0)
		error_errno(&err, r, "cannot start the process that reads %s", f.url);
	else
		r = begin(&f, &link, &err);
	if (r < 0) {
		(void)say(r, err.text[0] ? err.text : strerror(-r), NULL, 0);
		return CTL_FAILED;
	}
	r = say(0, "", (int[]){f.dir_fd, f.snapshot_fd}, 2);
	while (r == 0) {
		r = serve(&f, link);
		fetch_link_unref(link);
		if (r == 0)
			break;
		r = reach_again(&f, &link);
	}
	/* Exits at once, because nobody needs the remaining reads. */
	_exit(CTL_OK);
}

#define AT(member) .at = offsetof(struct fetch_run, member)

static const struct option_row fetch_rows[] = {
    {"socket", option_set_string, AT(socket_path), .value = "PATH", .takes = OPTION_FILE, .needed = true,
     .help = "socket of dieseld"},
    CTL_ROW_VERSION(AT(version), .help = "version to read (default: the newest)"),
};

#undef AT

const struct option_verb ctl_fetch = {
    .name = "fetch",
    .group = "Started by other programs",
    .arguments = "s3://BUCKET/PREFIX",
    .summary = "Read a dataset in a bucket for dieseld; jobs start it",
    .help = "The process ends with the job. Credentials and endpoint come from its environment and files.\n",
    .about = "Reads a dataset in a bucket for `dieseld` at PATH. Jobs start this process when they open such "
	     "a dataset, and it ends with them. There is no reason to run it by hand.",
    OPTION_ROWS(fetch_rows),
    .run = run,
};
