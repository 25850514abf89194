/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Opens and uses SQLite databases: a dataset's metadata, a recording, the daemon's history. Failures
 * are negative errnos, with an error text that names the file and says what to do. A database and its
 * statements belong to one thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct sql;
struct sql_statement;

enum sql_mode {
	SQL_READ, /* read-only: nothing on the disk changes */
	SQL_WRITE,
	SQL_CREATE, /* as SQL_WRITE, and creates the file if it is missing */
	SQL_NEW,    /* creates the file, which must be missing */
};

struct sql_options {
	enum sql_mode mode;
	int busy_ms;     /* maximum wait for locks of others, in milliseconds */
	bool takes_cut;  /* SQL_READ: a truncated file is read as though zeros followed */
	bool shares_log; /* writing: readers continue meanwhile (journal_mode WAL); nobody else may have write
			    access to the folder */
	/* Advice to the user for the error text; NULL: none. */
	const char *if_damaged, *if_busy;
};

/*
 * A database may come from anybody, so nothing in it is obeyed: no connection runs triggers, views or
 * functions that a schema names, and none loads or attaches anything. path must lead to a regular file.
 * Except with shares_log, only that file and its journal are opened.
 *
 * A reader neither plays back nor removes a journal: the journal of an interrupted writer is played back in a
 * copy without a name. The work for a statement is limited in proportion to the file's length. For SQLite,
 * count(*) is a single step, but count(1) takes steps for each row.
 *
 * options is copied, its texts are borrowed. -ENOENT, -EACCES, -ENOMEM, ...; those of lib/file_open.h. Damage
 * (-EBADMSG) is noticed only when the database is first used.
 */
int sql_open(const char *path, const struct sql_options *options, struct sql **ret, struct error *err);
/* As sql_open(), in the folder that contains path's last part; SQL_READ follows no link there. */
int sql_open_at(int dir_fd, const char *path, const struct sql_options *options, struct sql **ret,
		struct error *err);
/* Checks that the database has only tables and columns that one of these scripts creates in an empty
 * database, and nothing else that reads or computes. NULL ends the list. -EBADMSG: it has others. Call this
 * right after checking whose file it is, before reading anything else. */
int sql_check_tables(struct sql *sql, const char *const *scripts, struct error *err);
/* Rolls back a transaction that is open. The statements must have been freed. NULL is fine. */
void sql_close(struct sql *sql);
const char *sql_path(const struct sql *sql);
/* Returns true if the file was shorter, when it was opened, than its header says. SQLite reads the missing
 * part of a last page as zeros. */
bool sql_is_cut(const struct sql *sql);

/* Runs one or more statements without results. -EBUSY, -ENOSPC, -EACCES, -EIO, ...; -EBADMSG: damaged. */
int sql_execute(struct sql *sql, const char *text, struct error *err);
/* Reads the number that a query returns. Errors as sql_execute(); -EBADMSG also if the query returns none. */
int sql_number(struct sql *sql, const char *text, int64_t *ret, struct error *err);
/* Returns false if no transaction was open. */
bool sql_rollback(struct sql *sql);
/* Returns the id of the row inserted last. */
int64_t sql_last_id(const struct sql *sql);

/* Returns the number of rows that the last statement inserted, changed or deleted. */
int64_t sql_n_changed(const struct sql *sql);

/* 0, or as sql_execute(). */
int sql_prepare(struct sql *sql, const char *text, struct sql_statement **ret, struct error *err);
void sql_statement_free(struct sql_statement *st);
/* For _cleanup_(). */
void sql_statement_freep(struct sql_statement **st);

/* Parameters count from 1; memory is borrowed until the statement is reset. NAN and a NULL pointer become
 * NULL. */
void sql_bind_integer(struct sql_statement *st, int index, int64_t value);
void sql_bind_real(struct sql_statement *st, int index, double value);
void sql_bind_text(struct sql_statement *st, int index, const char *text);
void sql_bind_name(struct sql_statement *st, int index, const char *text, size_t length);
void sql_bind_bytes(struct sql_statement *st, int index, const void *data, size_t size);

enum sql_step_result {
	SQL_DONE = 0,
	SQL_ROW = 1, /* read its columns, then step on or reset */
};

/* Returns SQL_ROW, SQL_DONE, or an error as sql_execute(). */
int sql_step(struct sql_statement *st, struct error *err);
void sql_reset(struct sql_statement *st);
/* Steps and resets a statement that returns no rows. */
int sql_run(struct sql_statement *st, struct error *err);

/* Columns count from 0; pointers are valid until the next step or reset. NULL reads as 0, NAN, "" or NULL. */
bool sql_is_null(struct sql_statement *st, int column);
int64_t sql_integer(struct sql_statement *st, int column);
double sql_real(struct sql_statement *st, int column);
const char *sql_text(struct sql_statement *st, int column);
const void *sql_bytes(struct sql_statement *st, int column, size_t *ret_size);
