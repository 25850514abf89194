/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"

/* Names by which SQLite addresses the files. SQLite never gets the real names, because it reads options out
 * of some. */
static const char *const names[SQL_N_FILES] = {[SQL_MAIN] = SQL_FILES_NAME,
					       [SQL_JOURNAL] = SQL_FILES_NAME "-journal",
					       [SQL_WAL] = SQL_FILES_NAME "-wal"};

/* Finds a database's file. Copies the file if a killed writer left a journal, or if others write by a log. */

#define COPY_BYTES ((size_t)1 << 20)
#define FILE_MODE  0644 /* same as SQLite's default */
#define LOG_HEADER 32
#define ATTEMPTS   10
#define RETRY_NS   (10 * NS_PER_MS)

/* Bytes of a database that SQLite locks. */
#define SQL_PENDING_BYTE  0x40000000
#define SQL_RESERVED_BYTE (SQL_PENDING_BYTE + 1)
#define SQL_SHARED_FIRST  (SQL_PENDING_BYTE + 2)
#define SQL_SHARED_BYTES  510

static const char *const suffixes[SQL_N_FILES] = {
    [SQL_MAIN] = "", [SQL_JOURNAL] = "-journal", [SQL_WAL] = "-wal"};

/* Locks bytes of the file. 0; -EAGAIN: another process holds the lock; -errno. */
static int lock_bytes(int fd, off_t first, off_t n, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = n};

	if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Fails with -EAGAIN while a writer holds the pending byte, which it does until the current readers have
 * finished. */
static int lock_shared(int fd)
{
	int r = lock_bytes(fd, SQL_PENDING_BYTE, 1, F_RDLCK);

	if (r < 0)
		return r;
	r = lock_bytes(fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_RDLCK);
	int unlocked = lock_bytes(fd, SQL_PENDING_BYTE, 1, F_UNLCK);

	return r < 0 ? r : unlocked;
}

/* Returns true if another connection is about to write. */
static bool is_reserved(int fd)
{
	struct flock lock = {
	    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SQL_RESERVED_BYTE, .l_len = 1};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Syncs the folder. -1 with errno. */
static int sync_folder(const struct sql_files *files)
{
	_cleanup_(closep) int fd = openat(files->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -1 : fsync(fd);
}

/* Returns true if there is such a file. An empty file does not count; for a reader, neither does a file that
 * no writer of the database made. */
static bool has_file(const struct sql_files *files, enum sql_file_kind kind)
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
	return has_file(files, kind) ? file_to_read(files->dir_fd, files->names[kind], false) : -ENOENT;
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

	return !is_reserved(files->fds[SQL_MAIN]) && fd_read_at(journal, &first, 1, 0, &done) == 0 &&
	       done == 1 && first != 0;
}

static int wait_for_lock(const struct sql_files *files)
{
	const struct timespec pause = {.tv_nsec = RETRY_NS};
	uint64_t until_ns = clock_monotonic_ns() + (uint64_t)files->options.busy_ms * NS_PER_MS;
	int r;

	while ((r = lock_shared(files->fds[SQL_MAIN])) == -EAGAIN && clock_monotonic_ns() < until_ns)
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
		lock_bytes(files->fds[SQL_MAIN], 0, 0, F_UNLCK);
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
	if (has_file(files, SQL_WAL) || memcmp(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim)) != 0)
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

/* Returns the database's length in bytes by its header. The page size is at offset 16 (16 bits), the number
 * of pages at 28 (32 bits), both big-endian. */
static uint64_t bytes_by_header(int fd)
{
	unsigned char head[32];
	size_t done = 0;

	if (fd_read_at(fd, head, sizeof(head), 0, &done) < 0 || done < sizeof(head))
		return 0;
	uint64_t page = (uint64_t)head[16] << 8 | head[17];

	return (page == 1 ? 65536 : page) *
	       ((uint64_t)head[28] << 24 | (uint64_t)head[29] << 16 | (uint64_t)head[30] << 8 | head[31]);
}

struct database_file {
	sqlite3_file base;
	struct sql_files *files;
	int fd;
	enum sql_file_kind kind;
	int lock;
	bool syncs_folder;
};

static struct database_file *file_of(sqlite3_file *file)
{
	return (struct database_file *)file;
}

static int failed(struct sql_files *files, int r, int code)
{
	files->last_errno = -r;
	return code;
}

/* Returns SQL_N_FILES for a name that is not one of this database's. */
static enum sql_file_kind kind_of(const char *name)
{
	int kind = SQL_MAIN;

	while (kind < SQL_N_FILES && strcmp(name, names[kind]) != 0)
		kind++;
	return kind;
}

static int file_close(sqlite3_file *file)
{
	closep(&file_of(file)->fd);
	return SQLITE_OK;
}

static int file_read(sqlite3_file *file, void *buffer, int bytes, sqlite3_int64 offset)
{
	struct database_file *f = file_of(file);
	size_t done = 0;
	int r = fd_read_at(f->fd, buffer, (size_t)bytes, (uint64_t)offset, &done);

	if (r < 0)
		return failed(f->files, r, SQLITE_IOERR_READ);
	if (done == (size_t)bytes)
		return SQLITE_OK;
	memset((char *)buffer + done, 0, (size_t)bytes - done);
	return SQLITE_IOERR_SHORT_READ;
}

static bool may_write(const struct sql_files *files)
{
	return files->options.writes || files->are_copies;
}

static int file_write(sqlite3_file *file, const void *buffer, int bytes, sqlite3_int64 offset)
{
	struct database_file *f = file_of(file);

	if (!may_write(f->files))
		return SQLITE_READONLY;
	int r = fd_write_at(f->fd, buffer, (size_t)bytes, (uint64_t)offset);

	if (r == -ENOSPC)
		return failed(f->files, r, SQLITE_FULL);
	return r < 0 ? failed(f->files, r, SQLITE_IOERR_WRITE) : SQLITE_OK;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
	struct database_file *f = file_of(file);

	if (!may_write(f->files))
		return SQLITE_READONLY;
	return ftruncate(f->fd, bytes) < 0 ? failed(f->files, -errno, SQLITE_IOERR_TRUNCATE) : SQLITE_OK;
}

/* Also syncs the folder at the first sync of a new file, whose name may be lost otherwise. */
static int file_sync(sqlite3_file *file, int flags)
{
	struct database_file *f = file_of(file);
	(void)flags;

	if (f->files->are_copies)
		return SQLITE_OK;
	if (fdatasync(f->fd) < 0)
		return failed(f->files, -errno, SQLITE_IOERR_FSYNC);
	if (f->syncs_folder && sync_folder(f->files) < 0)
		return failed(f->files, -errno, SQLITE_IOERR_DIR_FSYNC);
	f->syncs_folder = false;
	return SQLITE_OK;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
	struct database_file *f = file_of(file);
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return failed(f->files, -errno, SQLITE_IOERR_FSTAT);
	*ret_bytes = st.st_size;
	if (f->kind == SQL_MAIN && f->files->options.takes_cut) {
		uint64_t whole = bytes_by_header(f->fd);

		if (whole > (uint64_t)st.st_size)
			*ret_bytes = (sqlite3_int64)whole;
	}
	return SQLITE_OK;
}

static int lock_failed(struct database_file *f, int r, int code)
{
	return r == -EAGAIN ? SQLITE_BUSY : failed(f->files, r, code);
}

static int file_lock(sqlite3_file *file, int lock)
{
	struct database_file *f = file_of(file);
	int r = 0;

	if (f->files->are_copies || lock <= f->lock)
		return SQLITE_OK;
	if (lock == SQLITE_LOCK_SHARED)
		r = lock_shared(f->fd);
	else if (lock == SQLITE_LOCK_RESERVED)
		r = lock_bytes(f->fd, SQL_RESERVED_BYTE, 1, F_WRLCK);
	else if (f->lock < SQLITE_LOCK_PENDING)
		r = lock_bytes(f->fd, SQL_PENDING_BYTE, 1, F_WRLCK);
	if (r == 0 && lock == SQLITE_LOCK_EXCLUSIVE) {
		f->lock = SQLITE_LOCK_PENDING; /* a pending lock keeps new readers out */
		r = lock_bytes(f->fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_WRLCK);
	}
	if (r < 0)
		return lock_failed(f, r, SQLITE_IOERR_LOCK);
	f->lock = lock;
	return SQLITE_OK;
}

static int file_unlock(sqlite3_file *file, int lock)
{
	struct database_file *f = file_of(file);
	int r = 0;

	if (f->files->are_copies || lock >= f->lock)
		return SQLITE_OK;
	if (lock == SQLITE_LOCK_SHARED) {
		if (f->lock > SQLITE_LOCK_RESERVED)
			r = lock_bytes(f->fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_RDLCK);
		if (r == 0)
			r = lock_bytes(f->fd, SQL_PENDING_BYTE, 2, F_UNLCK);
	} else {
		r = lock_bytes(f->fd, 0, 0, F_UNLCK);
	}
	if (r < 0)
		return failed(f->files, r, SQLITE_IOERR_UNLOCK);
	f->lock = lock;
	return SQLITE_OK;
}

static int file_check_reserved(sqlite3_file *file, int *ret)
{
	struct database_file *f = file_of(file);

	*ret = !f->files->are_copies && (f->lock > SQLITE_LOCK_SHARED || is_reserved(f->fd));
	return SQLITE_OK;
}

/* Reports whether the name leads to another file by now. Then nobody would find this file's journal. */
static int file_control(sqlite3_file *file, int operation, void *argument)
{
	struct database_file *f = file_of(file);
	struct stat named, st;

	if (operation != SQLITE_FCNTL_HAS_MOVED || f->files->are_copies)
		return SQLITE_NOTFOUND;
	*(int *)argument =
	    fstat(f->fd, &st) < 0 ||
	    fstatat(f->files->dir_fd, f->files->names[SQL_MAIN], &named, AT_SYMLINK_NOFOLLOW) < 0 ||
	    named.st_dev != st.st_dev || named.st_ino != st.st_ino;
	return SQLITE_OK;
}

static int file_sector(sqlite3_file *file)
{
	(void)file;
	return 4096;
}

static int file_traits(sqlite3_file *file)
{
	(void)file;
	return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* Version 1 of the methods has no shared memory, so there is no log that others write at the same time. */
static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
};

static struct sql_files *files_of(sqlite3_vfs *vfs)
{
	return vfs->pAppData;
}

static int open_copy(struct sql_files *files, enum sql_file_kind kind, bool creates)
{
	if (files->fds[kind] < 0 && creates)
		files->fds[kind] = file_temporary();
	if (files->fds[kind] < 0)
		return creates ? files->fds[kind] : -ENOENT;
	int fd = fcntl(files->fds[kind], F_DUPFD_CLOEXEC, 3);

	return fd < 0 ? -errno : fd;
}

/* Refuses a journal that somebody else made, because SQLite would play it back into this file. */
static int open_old_journal(const struct sql_files *files)
{
	const char *name = files->names[SQL_JOURNAL];
	_cleanup_(closep) int fd = files->options.writes ? file_to_write(files->dir_fd, name, 0, 0)
							 : file_to_read(files->dir_fd, name, false);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	return file_is_of_writer(&st, &files->main) ? steal_fd(&fd) : -EPERM;
}

/* Gives the journal the database's owner and mode, so that this owner can play it back. */
static int open_new_journal(const struct sql_files *files)
{
	_cleanup_(closep) int fd = file_to_write(files->dir_fd, files->names[SQL_JOURNAL], O_CREAT | O_EXCL,
						 files->main.st_mode & 0666);

	if (fd < 0)
		return fd;
	if (fchmod(fd, files->main.st_mode & 0666) < 0 ||
	    (geteuid() == 0 && fchown(fd, files->main.st_uid, files->main.st_gid) < 0 && errno != EPERM))
		return -errno;
	return steal_fd(&fd);
}

static int open_journal(const struct sql_files *files, bool creates, bool *made)
{
	int fd = creates && files->options.writes ? open_new_journal(files) : -EEXIST;

	*made = fd >= 0;
	return fd == -EEXIST ? open_old_journal(files) : fd;
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
	struct sql_files *files = files_of(vfs);
	struct database_file *f = file_of(file);
	enum sql_file_kind kind = name ? kind_of(name) : SQL_N_FILES;
	bool creates = flags & SQLITE_OPEN_CREATE, made = false;
	int fd = -EACCES;

	*f = (struct database_file){.files = files, .fd = -EBADF, .kind = kind};
	if (kind < SQL_N_FILES && files->are_copies)
		fd = open_copy(files, kind, creates);
	else if (kind == SQL_MAIN)
		fd = steal_fd(&files->fds[SQL_MAIN]); /* a connection opens the file only once */
	else if (kind == SQL_JOURNAL)
		fd = open_journal(files, creates, &made);
	if (fd < 0)
		return failed(files, fd, SQLITE_CANTOPEN);
	f->fd = fd;
	f->syncs_folder = made || (kind == SQL_MAIN && files->made);
	f->base.pMethods = &methods;
	if (ret_flags)
		*ret_flags = may_write(files) ? flags
					      : (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) |
						    SQLITE_OPEN_READONLY;
	return SQLITE_OK;
}

/* Removes this database's journal, and of copies also the log. Refuses other names, such as that of a
 * super-journal. */
static int vfs_delete(sqlite3_vfs *vfs, const char *name, int syncs)
{
	struct sql_files *files = files_of(vfs);
	enum sql_file_kind kind = kind_of(name);

	if (files->are_copies && (kind == SQL_JOURNAL || kind == SQL_WAL)) {
		closep(&files->fds[kind]);
		files->fds[kind] = -EBADF;
		return SQLITE_OK;
	}
	if (!files->options.writes || kind != SQL_JOURNAL)
		return failed(files, -EACCES, SQLITE_IOERR_DELETE);
	if (unlinkat(files->dir_fd, files->names[kind], 0) < 0)
		return failed(files, -errno,
			      errno == ENOENT ? SQLITE_IOERR_DELETE_NOENT : SQLITE_IOERR_DELETE);
	return syncs && sync_folder(files) < 0 ? failed(files, -errno, SQLITE_IOERR_DIR_FSYNC) : SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret)
{
	struct sql_files *files = files_of(vfs);
	enum sql_file_kind kind = kind_of(name);
	(void)flags;

	if (kind == SQL_N_FILES)
		*ret = 0;
	else if (files->are_copies)
		*ret = files->fds[kind] >= 0;
	else
		*ret = has_file(files, kind);
	return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *name, int space, char *ret)
{
	(void)vfs;
	return snprintf(ret, (size_t)space, "%s", name) < space ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int vfs_last_error(sqlite3_vfs *vfs, int space, char *text)
{
	(void)space, (void)text;
	return files_of(vfs)->last_errno;
}

static int vfs_random(sqlite3_vfs *vfs, int bytes, char *ret)
{
	(void)vfs;
	sqlite3_vfs *own = sqlite3_vfs_find(NULL);

	return own->xRandomness(own, bytes, ret);
}

static int vfs_sleep(sqlite3_vfs *vfs, int microseconds)
{
	(void)vfs;
	usleep((useconds_t)microseconds);
	return microseconds;
}

static int vfs_time(sqlite3_vfs *vfs, double *ret)
{
	(void)vfs;
	sqlite3_vfs *own = sqlite3_vfs_find(NULL);

	return own->xCurrentTime(own, ret);
}

static void make_vfs(struct sql_files *files)
{
	static atomic_uint n;

	snprintf(files->vfs_name, sizeof(files->vfs_name), "diesel-%u", atomic_fetch_add(&n, 1));
	files->vfs = (sqlite3_vfs){
	    .iVersion = 1,
	    .szOsFile = sizeof(struct database_file),
	    .mxPathname = 64,
	    .zName = files->vfs_name,
	    .pAppData = files,
	    .xOpen = vfs_open,
	    .xDelete = vfs_delete,
	    .xAccess = vfs_access,
	    .xFullPathname = vfs_full_path,
	    .xRandomness = vfs_random,
	    .xSleep = vfs_sleep,
	    .xCurrentTime = vfs_time,
	    .xGetLastError = vfs_last_error,
	};
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
	files->is_cut = bytes_by_header(files->fds[SQL_MAIN]) > (uint64_t)files->main.st_size;
	make_vfs(files);
	*ret = files;
	return 0;
}
