/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits SQLite to the files of one database, by a VFS of its own for each connection.
 *
 * A database is a name in an open folder. SQLite can open, create or remove only that file, its journal and
 * its log. Names in a file's content, such as that of a super-journal, lead nowhere. A reader has the file
 * open for reading only, and can neither play back nor remove a journal. If a journal must be played back to
 * read the committed data, that happens in copies without a name.
 *
 * Locks are those of SQLite's own VFS, on the same bytes, so other programs may use the file at the same
 * time. The locks belong to the open file (F_OFD_SETLK): closing another descriptor of the file does not
 * release them.
 */

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/error.h"

struct sql_files_options {
	bool writes, creates, is_new; /* creates: creates a missing file; is_new: the file must be missing */
	bool takes_cut;               /* reading: missing bytes at the end read as zeros */
	int busy_ms;
};

enum sql_file_kind { SQL_MAIN, SQL_JOURNAL, SQL_WAL, SQL_N_FILES };

/* Bytes of a database that SQLite locks. */
#define SQL_PENDING_BYTE  0x40000000
#define SQL_RESERVED_BYTE (SQL_PENDING_BYTE + 1)
#define SQL_SHARED_FIRST  (SQL_PENDING_BYTE + 2)
#define SQL_SHARED_BYTES  510

struct sql_files {
	struct sql_files_options options;
	int dir_fd; /* O_PATH */
	char *names[SQL_N_FILES];
	int fds[SQL_N_FILES]; /* the file, until SQLite has opened it; or the copies */
	bool are_copies;
	bool made;        /* the file is new */
	bool is_cut;      /* when opened, the database was shorter than its header says */
	struct stat main; /* status of the file when it was opened */
	int last_errno;
	char vfs_name[24];
	sqlite3_vfs vfs;
};

/* Locks bytes of the file. 0; -EAGAIN: another process holds the lock; -errno. */
int sql_lock_bytes(int fd, off_t first, off_t n, short type);
int sql_lock_shared(int fd);
/* Returns true if another connection is about to write. */
bool sql_is_reserved(int fd);
/* Syncs the folder. -1 with errno. */
int sql_files_sync_folder(const struct sql_files *files);
/* Returns the database's length in bytes by its header. */
uint64_t sql_files_bytes_by_header(int fd);
/* Returns true if there is such a file. An empty file does not count; for a reader, neither does a file that
 * no writer of the database made. */
bool sql_files_has(const struct sql_files *files, enum sql_file_kind kind);

/* Returns the VFS for as long as the files are open. The VFS knows the database by this name: */
#define SQL_FILES_NAME "main"
struct sqlite3_vfs *sql_files_vfs(struct sql_files *files);
