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
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/error.h"

struct sql_files_options {
	bool writes, creates, is_new; /* creates: creates a missing file; is_new: the file must be missing */
	bool takes_cut;               /* reading: missing bytes at the end read as zeros */
	int busy_ms;
};

enum sql_file_kind { SQL_MAIN, SQL_JOURNAL, SQL_WAL, SQL_N_FILES };

#define SQL_FILES_NAME "main" /* by which the VFS knows the database */

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

/* dir_fd: the folder that contains path's last part, borrowed during the call. With AT_FDCWD, path leads to
 * that folder, and a reader follows links. */
int sql_files_open(int dir_fd, const char *path, const struct sql_files_options *options,
		   struct sql_files **ret, struct error *err);
void sql_files_close(struct sql_files *files); /* accepts NULL */
