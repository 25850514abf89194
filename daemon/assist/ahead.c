/* SPDX-License-Identifier: Apache-2.0 */
#include "ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define STACK_BYTES (64u << 10)
#define READ_BYTES  (128u << 10)

struct waiting {
	uint64_t batch;
	char *name;
};

struct ahead {
	int null_fd;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct waiting files[AHEAD_FILES]; /* a ring */
	uint32_t first, n;
	struct {
		uint64_t id, bytes;
	} batches[AHEAD_BATCHES]; /* batches not done, indexed by id modulo AHEAD_BATCHES */
	uint64_t bytes;           /* bytes read for all of these batches */
	bool started;
	struct ahead_counters counters;
};

int ahead_new(int null_fd, struct ahead **ret)
{
	struct ahead *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	a->null_fd = null_fd;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->more, NULL);
	*ret = a;
	return 0;
}

static int open_plain(const char *name, uint64_t *ret_bytes)
{
	const struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
				     .resolve = RESOLVE_NO_MAGICLINKS};
	_cleanup_(closep) int fd = (int)syscall(SYS_openat2, AT_FDCWD, name, &how, sizeof(how));
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	*ret_bytes = st.st_size < (off_t)AHEAD_FILE_BYTES ? (uint64_t)st.st_size : AHEAD_FILE_BYTES;
	return steal_fd(&fd);
}

/* Returns true if three of the file's pages are in the page cache. False also if the file system does not
 * support the query. */
static bool is_resident(int fd, uint64_t bytes)
{
	const off_t at[] = {0, (off_t)(bytes / 2), (off_t)bytes - 1};
	char byte;
	const struct iovec one = {&byte, 1};

	for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
		if (preadv2(fd, &one, 1, at[i], RWF_NOWAIT) != 1)
			return false;
	return true;
}

/* Reads a file into the page cache without copying it. Returns the number of bytes, or -errno. */
static int64_t bring(int fd, int null_fd, uint64_t bytes)
{
	off_t at = 0;

	while ((uint64_t)at < bytes) {
		ssize_t n = sendfile(null_fd, fd, &at, bytes - (uint64_t)at);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
	}
	return at;
}

static int64_t bring_copying(int fd, uint64_t bytes, char *buffer)
{
	uint64_t at = 0;

	while (at < bytes) {
		ssize_t n = pread(fd, buffer, READ_BYTES, (off_t)at);

		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		at += (uint64_t)n;
	}
	return (int64_t)at;
}

/* Returns the number of bytes read, 0 if nothing had to be read, or -errno. */
static int64_t read_file(int null_fd, const char *name, char *buffer)
{
	uint64_t bytes = 0;
	int64_t done;
	_cleanup_(closep) int fd = open_plain(name, &bytes);

	if (fd < 0)
		return fd;
	if (!bytes || is_resident(fd, bytes))
		return 0;
	done = bring(fd, null_fd, bytes);
	return done == -EINVAL || done == -ENOSYS ? bring_copying(fd, bytes, buffer) : done;
}

static void count(struct ahead *a, uint64_t batch, int64_t bytes)
{
	if (bytes < 0) {
		a->counters.failed++;
		return;
	}
	if (bytes == 0) {
		a->counters.resident++;
		return;
	}
	a->counters.files++;
	a->counters.bytes += (uint64_t)bytes;
	if (a->batches[batch % AHEAD_BATCHES].id != batch)
		return;
	a->batches[batch % AHEAD_BATCHES].bytes += (uint64_t)bytes;
	a->bytes += (uint64_t)bytes;
}

static void *reader(void *user)
{
	struct ahead *a = user;
	char *buffer = malloc(READ_BYTES);

	pthread_mutex_lock(&a->lock);
	while (buffer) {
		struct waiting file;
		int64_t bytes;

		while (!a->n)
			pthread_cond_wait(&a->more, &a->lock);
		file = a->files[a->first];
		a->first = (a->first + 1) % AHEAD_FILES;
		a->n--;
		if (a->batches[file.batch % AHEAD_BATCHES].id == file.batch && a->bytes < AHEAD_BYTES) {
			pthread_mutex_unlock(&a->lock);
			bytes = read_file(a->null_fd, file.name, buffer);
			pthread_mutex_lock(&a->lock);
			count(a, file.batch, bytes);
		} else {
			a->counters.left_out++;
		}
		free(file.name);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* Starts the threads. Fewer than AHEAD_THREADS are enough, too. */
static void start(struct ahead *a)
{
	pthread_attr_t attributes;

	a->started = true;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < AHEAD_THREADS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, reader, a))
			break;
	}
	pthread_attr_destroy(&attributes);
}

static void forget(struct ahead *a, uint64_t batch)
{
	if (a->batches[batch % AHEAD_BATCHES].id != batch)
		return;
	a->bytes -= a->batches[batch % AHEAD_BATCHES].bytes;
	a->batches[batch % AHEAD_BATCHES].id = a->batches[batch % AHEAD_BATCHES].bytes = 0;
}

void ahead_add(struct ahead *a, uint64_t batch, const char *name)
{
	uint64_t *id = &a->batches[batch % AHEAD_BATCHES].id;
	char *copy = strdup(name);

	pthread_mutex_lock(&a->lock);
	if (!a->started)
		start(a);
	if (*id != batch) {
		forget(a, *id);
		*id = batch;
	}
	if (copy && a->n < AHEAD_FILES) {
		a->files[(a->first + a->n++) % AHEAD_FILES] = (struct waiting){batch, copy};
		copy = NULL;
		pthread_cond_signal(&a->more);
	} else {
		a->counters.left_out++;
	}
	pthread_mutex_unlock(&a->lock);
	free(copy);
}

void ahead_done(struct ahead *a, uint64_t batch)
{
	pthread_mutex_lock(&a->lock);
	forget(a, batch);
	pthread_mutex_unlock(&a->lock);
}

struct ahead_counters ahead_count(struct ahead *a)
{
	struct ahead_counters counters;

	pthread_mutex_lock(&a->lock);
	counters = a->counters;
	pthread_mutex_unlock(&a->lock);
	return counters;
}
