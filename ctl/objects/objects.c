/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/objects.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dataset/external.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/fd_message.h"
#include "lib/thread.h"
#include "s3/bucket.h"

#define N_THREADS   8 /* connections that read one object */
#define RANGE_BYTES ((uint64_t)8 << 20)
#define LIST_KEYS   1000 /* per request, the most that servers send */

enum objects_verb {
	OBJECTS_PUT,
	OBJECTS_REPLACE,
	OBJECTS_READ,
	OBJECTS_SIZE,
	OBJECTS_LIST,
	OBJECTS_DELETE,
	OBJECTS_STAT, /* length and stamp */
	OBJECTS_RANGE /* a part of an object, and the stamp */
};

struct objects_request {
	uint32_t verb; /* enum objects_verb */
	uint32_t reserved;
	uint64_t bytes;  /* to write, or to read */
	uint64_t offset; /* OBJECTS_RANGE */
	char key[BUCKET_KEY_MAX];
};

static int put(struct bucket *b, const struct objects_request *q, int fd, struct error *err)
{
	struct iovec part = {.iov_len = q->bytes};
	int r;

	if (q->bytes) {
		part.iov_base = mmap(NULL, q->bytes, PROT_READ, MAP_SHARED, fd, 0);
		if (part.iov_base == MAP_FAILED)
			return error_errno(err, -errno, "cannot map the data of %s", q->key);
	}
	r = (q->verb == OBJECTS_PUT ? bucket_put_new : bucket_replace)(b, q->key, &part, q->bytes > 0, err);
	if (q->bytes)
		munmap(part.iov_base, q->bytes);
	return r;
}

/* An object that several threads read. */
struct reading {
	struct bucket *bucket;
	const struct objects_request *request;
	unsigned char *memory;
	_Atomic uint64_t next; /* offset of the next range */
	pthread_mutex_t lock;  /* protects the error, which is that of the first failure, and the tag */
	struct error err;
	bool has_tag;
	char tag[BUCKET_TAG_MAX]; /* of the first range; that of all, unless the object was replaced */
	_Atomic bool failed;
};

static int check_tag(struct reading *w, const char *tag, struct error *err)
{
	bool same;

	pthread_mutex_lock(&w->lock);
	if (!w->has_tag)
		snprintf(w->tag, sizeof(w->tag), "%s", tag);
	w->has_tag = true;
	same = strcmp(w->tag, tag) == 0;
	pthread_mutex_unlock(&w->lock);
	return same ? 0
		    : error_set(err, -ESTALE, "%s was replaced while it was being read: read it again",
				w->request->key);
}

static void *read_ranges(void *context)
{
	struct reading *w = context;
	uint64_t bytes = w->request->bytes;

	while (!w->failed) {
		uint64_t at = atomic_fetch_add(&w->next, RANGE_BYTES);
		struct error err = ERROR_INIT;
		char tag[BUCKET_TAG_MAX];
		int r;

		if (at >= bytes)
			break;
		r = bucket_read_tagged(w->bucket, w->request->key, at, w->memory + at,
				       bytes - at < RANGE_BYTES ? bytes - at : RANGE_BYTES, tag, &err);
		if (r == 0)
			r = check_tag(w, tag, &err);
		if (r < 0) {
			pthread_mutex_lock(&w->lock);
			if (!w->failed) {
				w->err = err;
				w->err.code = r;
			}
			w->failed = true;
			pthread_mutex_unlock(&w->lock);
		}
	}
	return NULL;
}

static int read_object(struct bucket *b, const struct objects_request *q, int fd, struct error *err)
{
	struct reading w = {.bucket = b, .request = q, .lock = PTHREAD_MUTEX_INITIALIZER};
	pthread_t threads[N_THREADS - 1];
	unsigned n = 0;

	if (q->bytes == 0)
		return 0;
	w.memory = mmap(NULL, q->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w.memory == MAP_FAILED)
		return error_errno(err, -errno, "cannot map memory for %s", q->key);
	while (n < N_THREADS - 1 && (n + 1) * RANGE_BYTES < q->bytes &&
	       thread_start(&threads[n], read_ranges, &w) == 0)
		n++;
	read_ranges(&w);
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	munmap(w.memory, q->bytes);
	if (w.failed)
		*err = w.err;
	return w.failed ? w.err.code : 0;
}

static int read_range(const char *name, const struct objects_request *q, int fd, uint64_t *ret_stamp,
		      struct error *err)
{
	if (q->bytes == 0)
		return 0;
	void *memory = mmap(NULL, q->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		return error_errno(err, -errno, "cannot map memory for %s", name);
	int r = external_read_source(name, q->offset, memory, q->bytes, ret_stamp, err);

	munmap(memory, q->bytes);
	return r;
}

struct object_list {
	int fd;
	uint64_t bytes;
};

/* Writes "LENGTH KEY" and a null byte. */
static int list_one(const char *key, uint64_t bytes, void *context)
{
	struct object_list *l = context;
	char line[BUCKET_KEY_MAX + 32];
	int n = snprintf(line, sizeof(line), "%llu %s", (unsigned long long)bytes, key);

	if (n < 0 || (size_t)n >= sizeof(line))
		return 0; /* no key of ours */
	int r = fd_write(l->fd, line, (size_t)n + 1);

	l->bytes += (uint64_t)n + 1;
	return r;
}

static bool needs_memory(uint32_t verb)
{
	return verb != OBJECTS_SIZE && verb != OBJECTS_DELETE && verb != OBJECTS_STAT;
}

static int obey(struct bucket *b, const struct objects_request *q, int fd, struct objects_reply *ret,
		struct error *err)
{
	struct object_list listing = {.fd = fd};
	char name[EXTERNAL_NAME_MAX + 1];
	int r;

	if (fd < 0 && needs_memory(q->verb))
		return error_errno(err, -EINVAL, "request without memory");
	r = snprintf(name, sizeof(name), "%s/%s", bucket_url(b), q->key);
	if (r < 0 || (size_t)r >= sizeof(name))
		return error_errno(err, -ENAMETOOLONG, "%s", q->key);
	switch (q->verb) {
	case OBJECTS_PUT:
	case OBJECTS_REPLACE: return put(b, q, fd, err);
	case OBJECTS_READ: return read_object(b, q, fd, err);
	case OBJECTS_SIZE: return bucket_size(b, q->key, &ret->bytes, err);
	case OBJECTS_LIST:
		r = bucket_list(b, q->key, NULL, LIST_KEYS, list_one, &listing, err);
		ret->bytes = listing.bytes;
		return r;
	case OBJECTS_DELETE: return bucket_delete(b, q->key, err);
	case OBJECTS_STAT: return external_stat(name, &ret->bytes, &ret->stamp, err);
	case OBJECTS_RANGE: return read_range(name, q, fd, &ret->stamp, err);
	default: return error_errno(err, -EINVAL, "unknown request");
	}
}

static int say(int channel, int result, struct objects_reply *reply, const struct error *err)
{
	reply->result = result;
	snprintf(reply->text, sizeof(reply->text), "%s",
		 result < 0 && !err->text[0] ? strerror(-result) : err->text);
	return fd_message_send(channel, reply, sizeof(*reply), NULL, 0, 0);
}

/* Ends the process as soon as nobody waits for it: a write that went on could replace a later job's object.
 */
static void *watch(void *context)
{
	struct pollfd p = {.fd = *(int *)context, .events = POLLRDHUP};

	while (poll(&p, 1, -1) <= 0)
		;
	_exit(0);
	return NULL;
}

/* Returns false when the other end is closed. */
static bool serve_one(int channel, struct bucket *b)
{
	struct error err = ERROR_INIT;
	struct objects_request request;
	struct objects_reply reply = {0};
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;
	int n = fd_message_receive(channel, &request, sizeof(request), 0, fds, &n_fds);

	if (n == -EINTR)
		return true;
	if (n <= 0)
		return false;
	request.key[sizeof(request.key) - 1] = '\0';
	int r = n == sizeof(request) ? obey(b, &request, n_fds ? fds[0] : -EBADF, &reply, &err) : -EPROTO;

	for (size_t i = 0; i < n_fds; i++)
		closep(&fds[i]);
	return say(channel, r, &reply, &err) == 0;
}

int objects_serve(int channel, const char *url)
{
	struct objects_reply opened = {0};
	struct error err = ERROR_INIT;
	struct bucket *bucket;
	pthread_t watcher;
	int r = thread_start(&watcher, watch, &channel);

	if (r < 0)
		error_errno(&err, r, "cannot start the process that reads and writes %s", url);
	else
		r = bucket_open(url, &bucket, &err);
	if (say(channel, r, &opened, &err) < 0 || r < 0)
		return r < 0 ? r : -EPIPE;
	while (serve_one(channel, bucket))
		;
	bucket_close(bucket);
	return 0;
}
