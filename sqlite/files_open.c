/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a database's file. Copies the file if a killed writer left a journal, or if others write by a log. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "files_private.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"

#define COPY_BYTES ((size_t)1 << 20)
#define FILE_MODE  0644 /* same as SQLite's default */
#define LOG_HEADER 32
#define ATTEMPTS   10
#define RETRY_NS   (10 * NS_PER_MS)

static const char *const suffixes[SQL_N_FILES] = {
    [SQL_MAIN] = "", [SQL_JOURNAL] = "-journal", [SQL_WAL] = "-wal"};

int sql_lock_bytes(int fd, off_t first, off_t n, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Fails with -EAGAIN while a writer holds the pending byte, which it does until the current readers have
 * finished. */
int sql_lock_shared(int fd)
{
	int r = sql_lock_bytes(fd, SQL_PENDING_BYTE, 1, F_RDLCK);

	if (r < 0)
		return r;
	r = sql_lock_bytes(fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_RDLCK);
	int unlocked = sql_lock_bytes(fd, SQL_PENDING_BYTE, 1, F_UNLCK);

	return r < 0 ? r : unlocked;
}

bool sql_is_reserved(int fd)
{
	struct flock lock = {
	    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SQL_RESERVED_BYTE, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int sql_files_sync_folder(const struct sql_files *files)
{
	_cleanup_(closep) int fd = openat(files->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -1 : fsync(fd);
}

bool sql_files_has(const struct sql_files *files, enum sql_file_kind kind)
{
	struct stat st;

	if (fstatat(files->dir_fd, files->names[kind], &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	if (files->options.writes)
		return !S_ISREG(st.st_mode) || st.st_size > 0;
	return S_ISREG(st.st_mode) && st.st_size > 0 && file_is_of_writer(&st, &files->main);
}

/* Keeps holes, so that a file that only claims to be long costs nothing. */
static int copy_file(int from, int to)
{
	_cleanup_(freep) void *buffer = malloc(COPY_BYTES);
	struct stat st;
	size_t done = 0;

	if (!buffer)
		return -ENOMEM;
	if (fstat(from, &st) < 0 || ftruncate(to, st.st_size) < 0)
		return -errno;
	for (off_t at = 0; at < st.st_size; at += (off_t)done) {
		off_t data = lseek(from, at, SEEK_DATA);

		if (data < 0 && errno == ENXIO)
			return 0;
		at = data < 0 ? at : data;
		int r = fd_read_at(from, buffer, COPY_BYTES, (uint64_t)at, &done);

		if (r == 0)
			r = fd_write_at(to, buffer, done, (uint64_t)at);
		if (r < 0 || done == 0)
			return r;
	}
	return 0;
}

static int copy_to_temporary(int from)
{
	_cleanup_(closep) int to = file_temporary();
	int r = to < 0 ? to : copy_file(from, to);

	return r < 0 ? r : steal_fd(&to);
}

static int open_auxiliary(const struct sql_files *files, enum sql_file_kind kind)
{
	return sql_files_has(files, kind) ? file_to_read(files->dir_fd, files->names[kind], false) : -ENOENT;
}

/* Uses the copies instead of the file itself. */
static void use_copies(struct sql_files *files, int *main, int *other, enum sql_file_kind kind)
{
	closep(&files->fds[SQL_MAIN]);
	files->fds[SQL_MAIN] = steal_fd(main);
	files->fds[kind] = steal_fd(other);
	files->are_copies = true;
}

/* Copies the file and its journal. The caller holds the lock, so nobody writes to them meanwhile. */
static int copy_with_journal(struct sql_files *files, int journal)
{
	_cleanup_(closep) int main = copy_to_temporary(files->fds[SQL_MAIN]);
	_cleanup_(closep) int other = main < 0 ? main : copy_to_temporary(journal);

	if (main < 0 || other < 0)
		return main < 0 ? main : other;
	use_copies(files, &main, &other, SQL_JOURNAL);
	return 0;
}

/* Returns true if a writer was killed in a transaction, by SQLite's own rule. */
static bool is_hot(const struct sql_files *files, int journal)
{
	unsigned char first = 0;
	size_t done = 0;

	return !sql_is_reserved(files->fds[SQL_MAIN]) && fd_read_at(journal, &first, 1, 0, &done) == 0 &&
	       done == 1 && first != 0;
}

static int wait_for_lock(const struct sql_files *files)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	uint64_t until_ns = clock_monotonic_ns() + (uint64_t)files->options.busy_ms * NS_PER_MS;
	int r;

	while ((r = sql_lock_shared(files->fds[SQL_MAIN])) == -EAGAIN && clock_monotonic_ns() < until_ns)
		nanosleep(&pause, NULL);
	return r;
}

static int look_for_journal(struct sql_files *files)
{
	int r = wait_for_lock(files);

	/* A process that keeps the file locked is writing. If the file cannot be read, the first read reports
	 * it. */
	if (r < 0)
		return 0;
	_cleanup_(closep) int journal = open_auxiliary(files, SQL_JOURNAL);

	if (journal >= 0 && is_hot(files, journal))
		r = copy_with_journal(files, journal);
	if (!files->are_copies)
		sql_lock_bytes(files->fds[SQL_MAIN], 0, 0, F_UNLCK);
	return r;
}

struct log_state {
	dev_t device;
	ino_t inode;
	unsigned char head[LOG_HEADER]; /* its salts change whenever the log begins again */
};

static int log_state(const struct sql_files *files, int fd, struct log_state *ret)
{
	struct log_state state;
	struct stat st, named;
	size_t done = 0;

	memset(&state, 0, sizeof(state)); /* clears the padding, which memcmp() compares */
	if (fstatat(files->dir_fd, files->names[SQL_WAL], &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fstat(fd, &st) < 0)
		return -errno;
	if (named.st_dev != st.st_dev || named.st_ino != st.st_ino)
		return -EAGAIN;
	state.device = st.st_dev;
	state.inode = st.st_ino;
	int r = fd_read_at(fd, state.head, sizeof(state.head), 0, &done);

	if (r == 0)
		memcpy(ret, &state, sizeof(state));
	return r;
}

/* Copies the file, then the log. Data written to the file meanwhile comes from the log, so the copies are one
 * state. -EAGAIN: the log began again meanwhile. */
static int copy_with_log(struct sql_files *files, int log)
{
	struct log_state before, after;
	int r = log_state(files, log, &before);

	if (r < 0)
		return -EAGAIN;
	_cleanup_(closep) int main = copy_to_temporary(files->fds[SQL_MAIN]);
	_cleanup_(closep) int other = main < 0 ? main : copy_to_temporary(log);

	if (main < 0 || other < 0)
		return main < 0 ? main : other;
	if (log_state(files, log, &after) < 0 || memcmp(&before, &after, sizeof(before)) != 0)
		return -EAGAIN;
	use_copies(files, &main, &other, SQL_WAL);
	return 0;
}

static bool is_written_by_log(const struct sql_files *files)
{
	unsigned char versions[2] = "";
	size_t done = 0;

	return fd_read_at(files->fds[SQL_MAIN], versions, 2, 18, &done) == 0 && versions[1] == 2;
}

/* Copies a file without a log: its last writer has closed the log, so the file is complete. -EAGAIN: it was
 * written meanwhile. */
static int copy_without_log(struct sql_files *files)
{
	struct stat before, after;
	int none = -EBADF;

	if (fstat(files->fds[SQL_MAIN], &before) < 0)
		return -errno;
	_cleanup_(closep) int main = copy_to_temporary(files->fds[SQL_MAIN]);

	if (main < 0)
		return main;
	if (fstat(files->fds[SQL_MAIN], &after) < 0)
		return -errno;
	if (sql_files_has(files, SQL_WAL) ||
	    memcmp(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim)) != 0)
		return -EAGAIN;
	use_copies(files, &main, &none, SQL_WAL);
	return 0;
}

static int look_for_log(struct sql_files *files)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	int r = 0;

	if (!is_written_by_log(files))
		return 0;
	for (int i = 0; i < ATTEMPTS; i++) {
		_cleanup_(closep) int log = open_auxiliary(files, SQL_WAL);

		r = log < 0 ? copy_without_log(files) : copy_with_log(files, log);
		if (r != -EAGAIN)
			return r;
		nanosleep(&pause, NULL);
	}
	return r;
}

static int open_main(struct sql_files *files)
{
	const struct sql_files_options *o = &files->options;
	const char *name = files->names[SQL_MAIN];
	int fd;

	if (!o->writes)
		return file_to_read(files->dir_fd, name, false);
	fd = o->creates ? file_to_write(files->dir_fd, name, O_CREAT | O_EXCL, FILE_MODE) : -EEXIST;
	files->made = fd >= 0;
	return fd == -EEXIST && !o->is_new ? file_to_write(files->dir_fd, name, 0, 0) : fd;
}

/* Journal and log are in the folder of the file itself, so links to the file are followed first. */
static int find(int dir_fd, const char *path, bool follows, struct sql_files *files)
{
	_cleanup_(freep) char *real = follows && dir_fd == AT_FDCWD ? realpath(path, NULL) : NULL;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	if (dir_fd == AT_FDCWD)
		files->dir_fd = file_folder(real ? real : path, files->options.writes, &name);
	else
		files->dir_fd = openat(dir_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (files->dir_fd < 0)
		return dir_fd == AT_FDCWD ? files->dir_fd : -errno;
	for (int kind = 0; kind < SQL_N_FILES; kind++)
		if (asprintf(&files->names[kind], "%s%s", name, suffixes[kind]) < 0) {
			files->names[kind] = NULL;
			return -ENOMEM;
		}
	return 0;
}

int sql_files_open(int dir_fd, const char *path, const struct sql_files_options *options,
		   struct sql_files **ret, struct error *err)
{
	struct sql_files *files = calloc(1, sizeof(*files));

	if (!files)
		return error_errno(err, -ENOMEM, "%s", path);
	*files = (struct sql_files){.options = *options, .dir_fd = -EBADF, .fds = {-EBADF, -EBADF, -EBADF}};
	int r = find(dir_fd, path, !options->writes, files);

	if (r == 0)
		r = files->fds[SQL_MAIN] = open_main(files);
	if (r >= 0)
		r = fstat(files->fds[SQL_MAIN], &files->main) < 0 ? -errno : 0;
	if (r == 0 && !options->writes)
		r = look_for_log(files);
	if (r == 0 && !options->writes && !files->are_copies)
		r = look_for_journal(files);
	if (r == 0 && options->writes && is_written_by_log(files)) {
		sql_files_close(files);
		return error_set(err, -EBADMSG, "%s is not a DIESEL database (it has a write-ahead log)",
				 path);
	}
	if (r < 0) {
		sql_files_close(files);
		return file_error(err, r, "open", path);
	}
	files->is_cut = sql_files_bytes_by_header(files->fds[SQL_MAIN]) > (uint64_t)files->main.st_size;
	*ret = files;
	return 0;
}

void sql_files_close(struct sql_files *files)
{
	if (!files)
		return;
	for (int kind = 0; kind < SQL_N_FILES; kind++) {
		closep(&files->fds[kind]);
		free(files->names[kind]);
	}
	closep(&files->dir_fd);
	free(files);
}

bool sql_files_are_copies(const struct sql_files *files)
{
	return files->are_copies;
}

bool sql_files_are_cut(const struct sql_files *files)
{
	return files->is_cut;
}

uint64_t sql_files_bytes(const struct sql_files *files)
{
	return (uint64_t)files->main.st_size;
}
