/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * SQLite for the files that are databases: a dataset's metadata, a recording, the daemon's history. Results
 * are errno's, error texts name the file and say what to do about it. A database and its statements belong to
 * one thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct sql;
struct sql_statement;

enum sql_mode {
	SQL_READ, /* no statement can change it */
	SQL_WRITE,
	SQL_CREATE, /* write; a file that is missing is made */
};

struct sql_options {
	enum sql_mode mode;
	int busy_ms; /* how long to wait for others */
	/* What a user can do, for the error text; NULL: nothing that is known. */
	const char *if_damaged, *if_busy;
};

/* Also a file that is only read is opened for writing where that is permitted: what a killed writer has left
 * in the journal beside it must be brought home. options is copied, its texts are borrowed. -ENOENT, -EACCES,
 * -ENOMEM, ...; -EBADMSG (damaged) shows at the first use only. */
int sql_open(const char *path, const struct sql_options *options, struct sql **ret, struct error *err);
/* Rolls an open transaction back. Its statements must have been freed. NULL is fine. */
void sql_close(struct sql *sql);
const char *sql_path(const struct sql *sql);

/* One or more statements without results. -EBUSY, -ENOSPC, -EACCES, -EBADMSG: damaged; -EIO, ... */
int sql_execute(struct sql *sql, const char *text, struct error *err);
/* The number that a query gives; -EBADMSG: it gives none. */
int sql_number(struct sql *sql, const char *text, int64_t *ret, struct error *err);
/* false: no transaction was open. */
bool sql_rollback(struct sql *sql);
/* Of the row that was inserted last. */
int64_t sql_last_id(const struct sql *sql);

/* 0, or as sql_execute(). */
int sql_prepare(struct sql *sql, const char *text, struct sql_statement **ret, struct error *err);
void sql_statement_free(struct sql_statement *st);
/* For _cleanup_(). */
void sql_statement_freep(struct sql_statement **st);

/* Parameters count from 1; memory is borrowed until the statement is reset. NAN and NULL are SQL's NULL. */
void sql_bind_integer(struct sql_statement *st, int index, int64_t value);
void sql_bind_real(struct sql_statement *st, int index, double value);
void sql_bind_text(struct sql_statement *st, int index, const char *text);
void sql_bind_name(struct sql_statement *st, int index, const char *text, size_t length);
void sql_bind_bytes(struct sql_statement *st, int index, const void *data, size_t size);

enum sql_step_result {
	SQL_DONE = 0,
	SQL_ROW = 1, /* read its columns, then step on or reset */
};

/* SQL_ROW, SQL_DONE, or an error as sql_execute() has. */
int sql_step(struct sql_statement *st, struct error *err);
void sql_reset(struct sql_statement *st);
/* For a statement without rows: step and reset. */
int sql_run(struct sql_statement *st, struct error *err);

/* Columns count from 0; what is pointed to is valid until the next step or reset. NULL: 0, NAN, "", NULL. */
bool sql_is_null(struct sql_statement *st, int column);
int64_t sql_integer(struct sql_statement *st, int column);
double sql_real(struct sql_statement *st, int column);
const char *sql_text(struct sql_statement *st, int column);
const void *sql_bytes(struct sql_statement *st, int column, size_t *ret_size);
