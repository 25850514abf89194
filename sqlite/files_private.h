/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What files.c (the VFS) and files_open.c (which file it is, and copies) share. */

#include <sqlite3.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "files.h"

enum sql_file_kind { SQL_MAIN, SQL_JOURNAL, SQL_WAL, SQL_N_FILES };

/* SQLite's own bytes. */
#define SQL_PENDING_BYTE  0x40000000
#define SQL_RESERVED_BYTE (SQL_PENDING_BYTE + 1)
#define SQL_SHARED_FIRST  (SQL_PENDING_BYTE + 2)
#define SQL_SHARED_BYTES  510

struct sql_files {
	struct sql_files_options options;
	int dir_fd; /* O_PATH */
	char *names[SQL_N_FILES];
	int fds[SQL_N_FILES]; /* of the file, until SQLite has opened it; of copies */
	bool are_copies;
	bool made; /* the file is new */
	bool is_cut;
	struct stat main; /* when it was opened */
	int last_errno;
	char vfs_name[24];
	sqlite3_vfs vfs;
};

/* 0; -EAGAIN: somebody else has it; -errno. */
int sql_lock_bytes(int fd, off_t first, off_t n, short type);
int sql_lock_shared(int fd);
/* Somebody else is about to write. */
bool sql_is_reserved(int fd);
/* -1 with errno. */
int sql_files_sync_folder(const struct sql_files *files);
/* What the file's header says. */
uint64_t sql_files_bytes_by_header(int fd);
/* Whether there is such a file. An empty one is none; to who only looks, neither is one that no writer of the
 * database has made. */
bool sql_files_has(const struct sql_files *files, enum sql_file_kind kind);
