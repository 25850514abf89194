/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a database has the tables that we make, and nothing else. A name is not enough: a view that never
 * ends has any name, and so has a table whose columns are computed as they are read. So what a database says
 * of each is compared with what SQLite says of those that it makes by our own words.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <sqlite3.h>

#include "sqlite/db.h"

#include "lib/cleanup.h"

#define EVERYTHING "SELECT type, name, tbl_name, ifnull(sql, '') FROM sqlite_master"
#define N_COLUMNS  4

static void sqlite_closep(sqlite3 **db)
{
	sqlite3_close(*db);
}

static void finalizep(sqlite3_stmt **st)
{
	sqlite3_finalize(*st);
}

/* Whether two texts differ in nothing but blanks, which were not always the same. */
static bool is_same(const char *a, const char *b)
{
	for (;; a++, b++) {
		while (isspace((unsigned char)*a))
			a++;
		while (isspace((unsigned char)*b))
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
	}
}

static const char *own_text(sqlite3_stmt *st, int column)
{
	const char *text = (const char *)sqlite3_column_text(st, column);

	return text ? text : "";
}

static bool is_same_row(struct sql_statement *row, sqlite3_stmt *own)
{
	for (int i = 0; i < N_COLUMNS; i++)
		if (!is_same(sql_text(row, i), own_text(own, i)))
			return false;
	return true;
}

/* 1: one of these scripts makes that; 0: none does. */
static int is_ours(struct sql_statement *row, const char *script)
{
	_cleanup_(sqlite_closep) sqlite3 *db = NULL;
	_cleanup_(finalizep) sqlite3_stmt *own = NULL;
	int is = 0;

	if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
	    sqlite3_exec(db, script, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, EVERYTHING, -1, &own, NULL) != SQLITE_OK)
		return -ENOMEM;
	while (!is && sqlite3_step(own) == SQLITE_ROW)
		is = is_same_row(row, own);
	return is;
}

static const char *kind_of(struct sql_statement *row)
{
	static const char *const kinds[] = {"table", "view", "trigger", "index"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(sql_text(row, 0), kinds[i]))
			return kinds[i];
	return "thing of no kind";
}

int sql_check_tables(struct sql *sql, const char *const *scripts, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *rows = NULL;
	const char *advice = sql_advice(sql);
	int r = sql_prepare(sql, EVERYTHING, &rows, err), is = 1;

	while (r >= 0 && is == 1 && (r = sql_step(rows, err)) == SQL_ROW) {
		is = 0;
		for (const char *const *script = scripts; *script && is == 0; script++)
			is = is_ours(rows, *script);
	}
	if (r < 0 || is == 1)
		return r;
	if (is < 0)
		return error_errno(err, is, "%s", sql_path(sql));
	return error_set(err, -EBADMSG, "%s has something in it that DIESEL does not make: a %s%s%s",
			 sql_path(sql), kind_of(rows), advice ? ": " : "", advice ? advice : "");
}
