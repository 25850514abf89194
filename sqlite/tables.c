/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a database has the tables that we make, and nothing else. A name is not enough: a view that never
 * ends has any name, and so has a table whose columns are computed as they are read. Nor is what the list of
 * tables says of their kind, which SQLite itself does not believe: it goes by the statement next to it. So
 * the statement must be one that makes a table, and SQLite is asked which columns that has.
 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <sqlite3.h>

#include "sqlite/db.h"

#include "lib/cleanup.h"

#define MAKES_TABLE "CREATE TABLE "
/* Names end in a blank, and those of columns that are computed or hidden say so. */
#define COLUMNS                                                                                              \
	"SELECT ifnull(group_concat(name || ' ' || CASE hidden WHEN 0 THEN '' ELSE 'hidden ' END, ''), '')"  \
	" FROM pragma_table_xinfo(?1)"
#define INDEX "SELECT sql FROM sqlite_master WHERE type = 'index' AND name = ?1"

static void sqlite_closep(sqlite3 **db)
{
	sqlite3_close(*db);
}

static void finalizep(sqlite3_stmt **st)
{
	sqlite3_finalize(*st);
}

/* Returns true if two texts differ in nothing but blanks. */
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

/* 1: the script makes something of this name for which the query has the same text; 0: it does not. */
static int makes_same(const char *script, const char *query, const char *name, const char *text)
{
	_cleanup_(sqlite_closep) sqlite3 *db = NULL;
	_cleanup_(finalizep) sqlite3_stmt *own = NULL;

	if (sqlite3_open(":memory:", &db) != SQLITE_OK ||
	    sqlite3_exec(db, script, NULL, NULL, NULL) != SQLITE_OK ||
	    sqlite3_prepare_v2(db, query, -1, &own, NULL) != SQLITE_OK)
		return -ENOMEM;
	sqlite3_bind_text(own, 1, name, -1, SQLITE_STATIC);
	if (sqlite3_step(own) != SQLITE_ROW || !sqlite3_column_text(own, 0))
		return 0;
	return is_same((const char *)sqlite3_column_text(own, 0), text);
}

static int is_in_any(const char *const *scripts, const char *query, const char *name, const char *text)
{
	int is = 0;

	for (const char *const *script = scripts; *script && is == 0; script++)
		is = makes_same(*script, query, name, text);
	return is;
}

/* 1: its columns are those of ours. */
static int is_our_table(struct sql *sql, const char *name, const char *const *scripts, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *columns = NULL;
	int r = sql_prepare(sql, COLUMNS, &columns, err);

	if (r < 0)
		return r;
	sql_bind_text(columns, 1, name);
	r = sql_step(columns, err);
	if (r != SQL_ROW || !sql_text(columns, 0)[0])
		return r < 0 ? r : 0;
	return is_in_any(scripts, COLUMNS, name, sql_text(columns, 0));
}

/* row: name and statement of an entry. An index without a statement is of a table's own keys. */
static int is_ours(struct sql *sql, struct sql_statement *row, const char *const *scripts, struct error *err)
{
	const char *name = sql_text(row, 0), *statement = sql_text(row, 1);

	if (!statement[0])
		return 1;
	if (strncasecmp(statement, MAKES_TABLE, sizeof(MAKES_TABLE) - 1) == 0)
		return is_our_table(sql, name, scripts, err);
	return is_in_any(scripts, INDEX, name, statement);
}

int sql_check_tables(struct sql *sql, const char *const *scripts, struct error *err)
{
	_cleanup_(sql_statement_freep) struct sql_statement *rows = NULL;
	const char *advice = sql_advice(sql);
	int r = sql_prepare(sql, "SELECT name, sql FROM sqlite_master", &rows, err), is = 1;

	while (r >= 0 && is == 1 && (r = sql_step(rows, err)) == SQL_ROW)
		is = is_ours(sql, rows, scripts, err);
	if (r < 0 || is == 1)
		return r;
	if (is < 0)
		return is;
	return error_set(err, -EBADMSG, "%s has something in it that DIESEL does not make%s%s", sql_path(sql),
			 advice ? ": " : "", advice ? advice : "");
}
