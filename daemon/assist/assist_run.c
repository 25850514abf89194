/* SPDX-License-Identifier: Apache-2.0 */
/* The reader, which prefetches files: one process per job, with the job's rights. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "assist_message.h"
#include "batch_log.h"
#include "daemon/helpers/message.h"
#include "identity.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/kernel_calls.h"
#include "lib/cleanup.h"

/*
 * Reads files into the page cache by threads, in the order in which they were asked for. Reads only regular
 * files, with a limit per file and a total limit. A thread may hang for ever on a file; nothing here waits
 * for the threads, and they end only with the process.
 */

#define AHEAD_THREADS    32
#define AHEAD_FILES      4096           /* maximum number of files that wait */
#define AHEAD_FILE_BYTES (16u << 20)    /* maximum number of bytes read of one file */
#define AHEAD_BYTES      (256ull << 20) /* maximum number of bytes read for batches that are not done */
#define AHEAD_BATCHES    256

struct ahead_counters {
	uint64_t files, bytes;
	uint64_t resident; /* files that were already in the page cache; not included in files and bytes */
	uint64_t failed, left_out;
};

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

/* Creates a reader. null_fd: /dev/null, open for writing, must outlive the reader. -ENOMEM. */
static int ahead_new(int null_fd, struct ahead **ret)
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

/* Queues a file of a batch; copies the name. Files beyond the limits are left out. */
static void ahead_add(struct ahead *a, uint64_t batch, const char *name)
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

/* Ends a batch: its files that still wait are left out. */
static void ahead_done(struct ahead *a, uint64_t batch)
{
	pthread_mutex_lock(&a->lock);
	forget(a, batch);
	pthread_mutex_unlock(&a->lock);
}

static struct ahead_counters ahead_count(struct ahead *a)
{
	struct ahead_counters counters;

	pthread_mutex_lock(&a->lock);
	counters = a->counters;
	pthread_mutex_unlock(&a->lock);
	return counters;
}

struct message_reader {
	int fd, pidfd;
	struct ahead *ahead;
	struct batch_log log;
	bool charged;
	uint64_t said_ns;
	struct assist_told said;
};

static void on_ahead(void *user, uint64_t batch, const char *names, uint32_t n)
{
	struct message_reader *r = user;

	for (uint32_t i = 0; i < n; i++, names += strlen(names) + 1)
		ahead_add(r->ahead, batch, names);
}

static void on_done(void *user, uint64_t batch)
{
	ahead_done(((struct message_reader *)user)->ahead, batch);
}

/* Sends a report if it has changed. Returns false if the receiver is gone. */
static bool say(struct message_reader *r, const struct ahead_counters *done, uint64_t now_ns)
{
	struct assist_told told = {.state = r->log.judge.state, .charged = r->charged};

	told.figures = r->log.figures;
	told.figures.files = done->files;
	told.figures.bytes = done->bytes;
	told.figures.failed = done->failed;
	snprintf(told.why, sizeof(told.why), "%s", r->log.judge.why);
	r->said_ns = now_ns;
	if (!memcmp(&told, &r->said, sizeof(told)))
		return true;
	r->said = told;
	return send(r->fd, &told, sizeof(told), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN;
}

static void take(struct message_reader *r, const char *bytes, size_t n)
{
	struct index_record record;

	while (n >= sizeof(record)) {
		memcpy(&record, bytes, sizeof(record));
		bytes += sizeof(record);
		n -= sizeof(record);
		if (record.bytes > n)
			return;
		batch_log_record(&r->log, &record, bytes);
		bytes += record.bytes;
		n -= record.bytes;
	}
}

static void serve(struct message_reader *r)
{
	static char bytes[ASSIST_FEED_BYTES];

	for (;;) {
		struct pollfd fds[2] = {{.fd = r->fd, .events = POLLIN}, {.fd = r->pidfd, .events = POLLIN}};
		int n = poll(fds, 2, 1000);
		uint64_t now_ns = clock_monotonic_ns();
		struct ahead_counters done;
		ssize_t got;

		if (fds[1].revents || (n < 0 && errno != EINTR))
			return;
		if (fds[0].revents) {
			got = recv(r->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
			if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
				return;
			if (got > 0)
				take(r, bytes, (size_t)got);
		}
		done = ahead_count(r->ahead);
		batch_log_turn(&r->log, now_ns, done.files, done.resident);
		if (now_ns - r->said_ns < NS_PER_S)
			continue;
		if (!say(r, &done, now_ns))
			return;
	}
}

bool assist_only_observes;

int assist_reader_run(int fd)
{
	static struct message_reader r;
	struct error err = ERROR_INIT;
	struct assist_order order;
	int code, null_fd;

	if (message_receive(fd, &order, sizeof(order), 0, NULL, 0) < 0)
		return 1;
	helper_title(HELPER_AHEAD, order.uid);
	r.fd = fd;
	/* Opens /dev/null before the change of root, because the job's root may have none. */
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	r.pidfd = kernel_pidfd_open((pid_t)order.pid);
	code = null_fd < 0   ? error_errno(&err, -errno, "cannot open /dev/null")
	       : r.pidfd < 0 ? error_errno(&err, -errno, "process %lld is gone", (long long)order.pid)
			     : identity_take((pid_t)order.pid, order.start_ticks, order.uid, order.gid,
					     &r.charged, &err);
	if (helper_settle(HELPER_AHEAD) < 0)
		return 1;
	if (code == 0)
		code = ahead_new(null_fd, &r.ahead);
	if (code < 0) {
		struct assist_told told = {.state = ASSIST_STOPPED};

		snprintf(told.why, sizeof(told.why), "%.190s", err.text);
		(void)send(fd, &told, sizeof(told), MSG_DONTWAIT | MSG_NOSIGNAL);
		return 1;
	}
	r.log.judge.observe = assist_only_observes;
	r.log.handler = (struct batch_log_handler){.ahead = on_ahead, .done = on_done, .user = &r};
	serve(&r);
	return 0;
}
