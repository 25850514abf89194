/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * SQLite for this folder, and the one user of its header here: errno results, error texts that name the file.
 * One thread at a time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct sql;
struct sql_statement;

/* Also an existing file for reading alone is opened for writing where that is permitted: what a killed writer
 * has left in the journal beside it must be brought home. -EBADMSG shows at the first use only. */
int sql_open(const char *path, bool create, struct sql **ret, struct error *err);
/* Its statements must have been freed. NULL is fine. */
void sql_close(struct sql *sql);

/* Statements without results. -EBUSY, -ENOSPC, -EACCES, -EBADMSG: damaged; -EIO, ... */
int sql_execute(struct sql *sql, const char *text, struct error *err);
int sql_number(struct sql *sql, const char *text, int64_t *ret, struct error *err);
void sql_rollback(struct sql *sql);

int sql_prepare(struct sql *sql, const char *text, struct sql_statement **ret, struct error *err);
void sql_statement_free(struct sql_statement *st);

/* Parameters count from 1; memory is borrowed until the statement is reset. NAN and NULL are SQL's NULL. */
void sql_bind_integer(struct sql_statement *st, int index, uint64_t value);
void sql_bind_real(struct sql_statement *st, int index, double value);
void sql_bind_text(struct sql_statement *st, int index, const char *text);
void sql_bind_bytes(struct sql_statement *st, int index, const void *data, size_t size);

/* 1: a row; 0: no more. */
int sql_step(struct sql_statement *st, struct error *err);
void sql_reset(struct sql_statement *st);
/* Without rows: step and reset. */
int sql_run(struct sql_statement *st, struct error *err);
int64_t sql_last_id(const struct sql *sql);

/* Columns count from 0; what is pointed to is valid until the next step. NULL: NAN, "", NULL. */
bool sql_is_null(struct sql_statement *st, int column);
uint64_t sql_integer(struct sql_statement *st, int column);
double sql_real(struct sql_statement *st, int column);
const char *sql_text(struct sql_statement *st, int column);
const void *sql_bytes(struct sql_statement *st, int column, size_t *ret_size);
