/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"

/* Names by which SQLite addresses the files. SQLite never gets the real names, because it reads options out
 * of some. */
static const char *const names[SQL_N_FILES] = {[SQL_MAIN] = SQL_FILES_NAME,
					       [SQL_JOURNAL] = SQL_FILES_NAME "-journal",
					       [SQL_WAL] = SQL_FILES_NAME "-wal"};

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
	if (f->syncs_folder && sql_files_sync_folder(f->files) < 0)
		return failed(f->files, -errno, SQLITE_IOERR_DIR_FSYNC);
	f->syncs_folder = false;
	return SQLITE_OK;
}

/* The page size is at offset 16 (16 bits), the number of pages at 28 (32 bits), both big-endian. */
uint64_t sql_files_bytes_by_header(int fd)
{
	unsigned char head[32];
	size_t done = 0;

	if (fd_read_at(fd, head, sizeof(head), 0, &done) < 0 || done < sizeof(head))
		return 0;
	uint64_t page = (uint64_t)head[16] << 8 | head[17];

	return (page == 1 ? 65536 : page) *
	       ((uint64_t)head[28] << 24 | (uint64_t)head[29] << 16 | (uint64_t)head[30] << 8 | head[31]);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *ret_bytes)
{
	struct database_file *f = file_of(file);
	struct stat st;

	if (fstat(f->fd, &st) < 0)
		return failed(f->files, -errno, SQLITE_IOERR_FSTAT);
	*ret_bytes = st.st_size;
	if (f->kind == SQL_MAIN && f->files->options.takes_cut) {
		uint64_t whole = sql_files_bytes_by_header(f->fd);

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
		r = sql_lock_shared(f->fd);
	else if (lock == SQLITE_LOCK_RESERVED)
		r = sql_lock_bytes(f->fd, SQL_RESERVED_BYTE, 1, F_WRLCK);
	else if (f->lock < SQLITE_LOCK_PENDING)
		r = sql_lock_bytes(f->fd, SQL_PENDING_BYTE, 1, F_WRLCK);
	if (r == 0 && lock == SQLITE_LOCK_EXCLUSIVE) {
		f->lock = SQLITE_LOCK_PENDING; /* a pending lock keeps new readers out */
		r = sql_lock_bytes(f->fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_WRLCK);
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
			r = sql_lock_bytes(f->fd, SQL_SHARED_FIRST, SQL_SHARED_BYTES, F_RDLCK);
		if (r == 0)
			r = sql_lock_bytes(f->fd, SQL_PENDING_BYTE, 2, F_UNLCK);
	} else {
		r = sql_lock_bytes(f->fd, 0, 0, F_UNLCK);
	}
	if (r < 0)
		return failed(f->files, r, SQLITE_IOERR_UNLOCK);
	f->lock = lock;
	return SQLITE_OK;
}

static int file_check_reserved(sqlite3_file *file, int *ret)
{
	struct database_file *f = file_of(file);

	*ret = !f->files->are_copies && (f->lock > SQLITE_LOCK_SHARED || sql_is_reserved(f->fd));
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
	return syncs && sql_files_sync_folder(files) < 0 ? failed(files, -errno, SQLITE_IOERR_DIR_FSYNC)
							 : SQLITE_OK;
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
		*ret = sql_files_has(files, kind);
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

sqlite3_vfs *sql_files_vfs(struct sql_files *files)
{
	static atomic_uint n;

	if (files->vfs.zName)
		return &files->vfs;
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
	return &files->vfs;
}
