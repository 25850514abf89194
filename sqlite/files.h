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

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct sqlite3_vfs;
struct sql_files;

struct sql_files_options {
	bool writes, creates, is_new; /* creates: creates a missing file; is_new: the file must be missing */
	bool takes_cut;               /* reading: missing bytes at the end read as zeros */
	int busy_ms;
};

/* dir_fd: the folder that contains path's last part, borrowed during the call. With AT_FDCWD, path leads to
 * that folder, and a reader follows links. */
int sql_files_open(int dir_fd, const char *path, const struct sql_files_options *options,
		   struct sql_files **ret, struct error *err);
/* Frees the files. Call after the connection is closed. */
void sql_files_close(struct sql_files *files);

/* Returns the VFS, valid until sql_files_close(). The VFS knows the database by this name: */
#define SQL_FILES_NAME "main"
struct sqlite3_vfs *sql_files_vfs(struct sql_files *files);
/* Returns true if the files are private copies, in which a journal is played back. */
bool sql_files_are_copies(const struct sql_files *files);
/* Return whether the database, when opened, was shorter than its header says, and its length at that time. */
bool sql_files_are_cut(const struct sql_files *files);
uint64_t sql_files_bytes(const struct sql_files *files);
