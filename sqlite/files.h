/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files of one database, as SQLite is allowed to reach them (a VFS of its own for each connection).
 *
 * A database is a name in a folder that is open: there are that file, its journal and its log, and no other
 * name that SQLite could open, make or remove. Names that a file's bytes have in them, such as that of a
 * super-journal, lead nowhere. Who only looks has the file open for reading, and can neither play a journal
 * back nor remove one. Where one has to be played back to read what was committed, that happens in copies
 * without a name.
 *
 * Locks are those of SQLite's own VFS, on the same bytes, so other programs may use the file meanwhile. They
 * belong to the open file (F_OFD_SETLK): to close another descriptor of it does not lose them.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct sqlite3_vfs;
struct sql_files;

struct sql_files_options {
	bool writes, creates, is_new; /* creates: if it is missing; is_new: it has to be missing */
	bool takes_cut;               /* reading: missing bytes at the end read as zeros */
	int busy_ms;
};

/* dir_fd: the folder that path's last part is in, borrowed until this returns; or AT_FDCWD: path leads there,
 * and who only looks follows a link. */
int sql_files_open(int dir_fd, const char *path, const struct sql_files_options *options,
		   struct sql_files **ret, struct error *err);
/* Frees the files. Call after the connection is closed. */
void sql_files_close(struct sql_files *files);

/* Returns the VFS, valid until sql_files_close(). The database has this name in it: */
#define SQL_FILES_NAME "main"
struct sqlite3_vfs *sql_files_vfs(struct sql_files *files);
/* Returns true if the files are private copies, in which a journal is played back. */
bool sql_files_are_copies(const struct sql_files *files);
/* Return whether the database was shorter, when it was opened, than its header says, and its length then. */
bool sql_files_are_cut(const struct sql_files *files);
uint64_t sql_files_bytes(const struct sql_files *files);
