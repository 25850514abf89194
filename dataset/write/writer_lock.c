/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock file has four lines: its type, the process, its host, and the lease in seconds. It is removed by
 * its holder, or by the writer that takes over. So a process that has locked the file checks that the file
 * still has its name.
 */
#include "writer_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/file_open.h"
#include "lib/text.h"
#include "lib/thread.h"
#include "lib/units.h"

#define LEASE_VARIABLE  "DIESEL_WRITER_LEASE"
#define DEFAULT_LEASE_S 60
#define MAX_LEASE_S     86400
#define RENEWALS        6 /* a lease */
#define MAX_ATTEMPTS    100
#define FILE_MODE       0666
#define TEXT_BYTES      256

enum { AT_WORK, KEPT }; /* the two bytes of the file that are locked */

struct writer_lock {
	int dir_fd;
	const char *path;
	int fd;
	bool is_kept;
	int64_t lease_s;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool ends;
};

static struct flock of_bytes(off_t first, off_t n, short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
}

/* Locks n bytes. Returns 0 or -errno; -EAGAIN: another process has locked them. */
static int lock_bytes(int fd, off_t first, off_t n)
{
	struct flock lock = of_bytes(first, n, F_WRLCK);

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

static bool is_locked(int fd, off_t byte)
{
	struct flock lock = of_bytes(byte, 1, F_WRLCK);

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Returns 0 if the name still leads to this file, or -ENOENT, or -errno. */
static int check_name(int dir_fd, int fd)
{
	struct stat named, st;

	if (fstat(fd, &st) < 0 || fstatat(dir_fd, WRITER_LOCK_FILE, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return named.st_dev == st.st_dev && named.st_ino == st.st_ino ? 0 : -ENOENT;
}

/* Opens the lock file. -EINVAL: not a regular file. */
static int open_file(int dir_fd, int flags)
{
	_cleanup_(closep) int fd =
	    openat(dir_fd, WRITER_LOCK_FILE, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? steal_fd(&fd) : -EINVAL;
}

static int64_t lease_setting(void)
{
	const char *text = getenv(LEASE_VARIABLE);
	int64_t seconds;

	return text && units_parse_integer(text, 1, MAX_LEASE_S, &seconds) == 0 ? seconds : DEFAULT_LEASE_S;
}

static void read_sign(int fd, struct writer_sign *s)
{
	char text[TEXT_BYTES], host[sizeof(s->host)] = "";
	long pid = 0;
	int64_t lease_s = 0;
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	sscanf(text, "DIESEL writer 1\n%ld\n%64[^\n]\n%" SCNd64, &pid, host, &lease_s);
	s->pid = pid > 0 ? (pid_t)pid : 0;
	text_printable(s->host, sizeof(s->host), host, strlen(host));
	if (lease_s < 1 || lease_s > MAX_LEASE_S)
		lease_s = DEFAULT_LEASE_S;
	s->lease_ns = (uint64_t)lease_s * NS_PER_S;
}

static int take_sign(int fd, struct writer_sign *ret)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	*ret = (struct writer_sign){.device = st.st_dev, .inode = st.st_ino, .renewed = st.st_mtim};
	ret->is_kept = is_locked(fd, KEPT);
	read_sign(fd, ret);
	return 0;
}

char *writer_sign_name(const struct writer_sign *s, char *text, size_t size)
{
	char own[sizeof(s->host)] = "", host[sizeof(s->host)];

	gethostname(own, sizeof(own) - 1);
	text_printable(host, sizeof(host), own, strlen(own));
	if (!s->pid)
		snprintf(text, size, "another dieselctl");
	else if (!s->host[0] || !strcmp(host, s->host))
		snprintf(text, size, "process %ld", (long)s->pid);
	else
		snprintf(text, size, "process %ld on %s", (long)s->pid, s->host);
	return text;
}

static bool is_same(const struct writer_sign *a, const struct writer_sign *b)
{
	return a->device == b->device && a->inode == b->inode;
}

bool writer_sign_is_new(const struct writer_sign *now, const struct writer_sign *before)
{
	return !is_same(now, before) || now->renewed.tv_sec != before->renewed.tv_sec ||
	       now->renewed.tv_nsec != before->renewed.tv_nsec;
}

static int open_folder(const char *dataset_path)
{
	return open(dataset_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

bool writer_at_work(const char *dataset_path, struct writer_sign *ret)
{
	_cleanup_(closep) int dir_fd = open_folder(dataset_path);
	_cleanup_(closep) int fd = dir_fd < 0 ? -EBADF : open_file(dir_fd, O_RDONLY);

	return fd >= 0 && is_locked(fd, AT_WORK) && take_sign(fd, ret) == 0;
}

int writer_take_over(const char *dataset_path, const struct writer_sign *seen, struct error *err)
{
	_cleanup_(closep) int dir_fd = open_folder(dataset_path);
	_cleanup_(closep) int fd = dir_fd < 0 ? -errno : open_file(dir_fd, O_RDWR);
	struct writer_sign now;

	if (fd == -ENOENT)
		return -EAGAIN;
	int r = fd < 0 ? fd : lock_bytes(fd, KEPT, 1);

	if (r == 0)
		r = take_sign(fd, &now);
	if (r == 0 && (writer_sign_is_new(&now, seen) || check_name(dir_fd, fd) < 0))
		r = -EAGAIN;
	if (r == 0 && unlinkat(dir_fd, WRITER_LOCK_FILE, 0) < 0)
		r = -errno;
	return r < 0 && r != -EAGAIN
		   ? error_errno(err, r, "cannot take over %s/" WRITER_LOCK_FILE, dataset_path)
		   : r;
}

/* Writes the lock file's text, which is for people: the lock holds even if the text cannot be written. */
static void write_text(const struct writer_lock *l)
{
	char host[sizeof(((struct writer_sign *)NULL)->host)] = "", text[TEXT_BYTES];

	gethostname(host, sizeof(host) - 1);
	int n = snprintf(text, sizeof(text), "DIESEL writer 1\n%ld\n%s\n%" PRId64 "\n", (long)getpid(), host,
			 l->lease_s);

	if (ftruncate(l->fd, 0) < 0 || pwrite(l->fd, text, (size_t)n, 0) < 0)
		return;
}

static void *renew(void *argument)
{
	struct writer_lock *l = argument;
	struct timespec at;

	pthread_mutex_lock(&l->mutex);
	while (!l->ends) {
		clock_gettime(CLOCK_MONOTONIC, &at);
		uint64_t ns = (uint64_t)at.tv_nsec + (uint64_t)l->lease_s * NS_PER_S / RENEWALS;

		at.tv_sec += (time_t)(ns / NS_PER_S);
		at.tv_nsec = (long)(ns % NS_PER_S);
		if (pthread_cond_timedwait(&l->changed, &l->mutex, &at) == ETIMEDOUT)
			futimens(l->fd, NULL);
	}
	pthread_mutex_unlock(&l->mutex);
	return NULL;
}

static void init_condition(struct writer_lock *l)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&l->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&l->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static int is_held(const char *path, int fd, struct error *err)
{
	struct writer_sign sign = {0};
	char who[WRITER_SIGN_NAME] = "another dieselctl";

	if (take_sign(fd, &sign) == 0)
		writer_sign_name(&sign, who, sizeof(who));
	return error_set(err, -EBUSY, "%s is being changed by another dieselctl%s%s%s; try again later", path,
			 sign.pid ? " (" : "", sign.pid ? who : "", sign.pid ? ")" : "");
}

static int lock_error(int r, const char *path, struct error *err)
{
	char name[PATH_MAX];

	snprintf(name, sizeof(name), "%s/" WRITER_LOCK_FILE, path);
	return file_error(err, r, "open", name);
}

/* Opens the lock file, and locks both bytes. */
static int lock_file(int dir_fd, const char *path, struct error *err)
{
	for (int i = 0; i < MAX_ATTEMPTS; i++) {
		_cleanup_(closep) int fd = file_to_write(dir_fd, WRITER_LOCK_FILE, O_CREAT, FILE_MODE);

		if (fd < 0)
			return lock_error(fd, path, err);
		int r = lock_bytes(fd, AT_WORK, 2);

		if (r == -EAGAIN)
			return is_held(path, fd, err);
		if (r == 0)
			r = check_name(dir_fd, fd);
		if (r == 0)
			return steal_fd(&fd);
		if (r != -ENOENT)
			return error_errno(err, r, "cannot lock %s/" WRITER_LOCK_FILE, path);
	}
	return error_set(err, -EBUSY, "other dieselctl commands keep changing %s; try again", path);
}

int writer_lock_take(int dir_fd, const char *path, struct writer_lock **ret, struct error *err)
{
	struct writer_lock *l = calloc(1, sizeof(*l));
	int r = l ? lock_file(dir_fd, path, err) : error_errno(err, -ENOMEM, "%s", path);

	if (r < 0) {
		free(l);
		return r;
	}
	*l = (struct writer_lock){
	    .dir_fd = dir_fd, .path = path, .fd = r, .lease_s = lease_setting(), .is_kept = true};
	init_condition(l);
	write_text(l);
	r = thread_start(&l->thread, renew, l);
	l->has_thread = r == 0;
	if (r < 0) {
		writer_lock_free(l);
		return error_errno(err, r, "%s", path);
	}
	*ret = l;
	return 0;
}

static int was_taken(const struct writer_lock *l, struct error *err)
{
	return error_set(err, -EBUSY,
			 "%s: another dieselctl took over, because this one gave no sign of life for %" PRId64
			 " s. This one published nothing: run the command again",
			 l->path, l->lease_s);
}

int writer_lock_check(const struct writer_lock *l, struct error *err)
{
	int r = l ? check_name(l->dir_fd, l->fd) : 0;

	if (r == -ENOENT)
		return was_taken(l, err);
	return r < 0 ? error_errno(err, r, "cannot look at %s/" WRITER_LOCK_FILE, l->path) : 0;
}

void writer_lock_loosen(struct writer_lock *l)
{
	struct flock lock = of_bytes(KEPT, 1, F_UNLCK);

	if (!l)
		return;
	fcntl(l->fd, F_OFD_SETLK, &lock);
	l->is_kept = false;
}

/* Prevents other writers from taking the lock over from here on. -EBUSY: one already has. */
static int keep(struct writer_lock *l, struct error *err)
{
	int r = l && !l->is_kept ? lock_bytes(l->fd, KEPT, 1) : 0;

	if (r == -EAGAIN)
		return was_taken(l, err);
	if (r < 0)
		return error_errno(err, r, "cannot lock %s/" WRITER_LOCK_FILE, l->path);
	if (l)
		l->is_kept = true;
	return writer_lock_check(l, err);
}

int writer_hold(struct writer *w, struct error *err)
{
	return keep(w->lock, err);
}

void writer_lock_free(struct writer_lock *l)
{
	if (!l)
		return;
	if (l->has_thread) {
		pthread_mutex_lock(&l->mutex);
		l->ends = true;
		pthread_cond_signal(&l->changed);
		pthread_mutex_unlock(&l->mutex);
		pthread_join(l->thread, NULL);
	}
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->mutex);
	if (check_name(l->dir_fd, l->fd) == 0)
		unlinkat(l->dir_fd, WRITER_LOCK_FILE, 0);
	close(l->fd);
	free(l);
}
