/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#include "sqlite/db.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/diesel-sql-XXXXXX", path[64], journal[80];

static const struct sql_options create = {
    .mode = SQL_CREATE, .if_damaged = "make a new one", .if_busy = "try again"};

static int make_folder(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(journal, sizeof(journal), "%s-journal", path);
	return 0;
}

static int remove_files(void **state)
{
	unlink(path);
	unlink(journal);
	return 0;
}

static int remove_folder(void **state)
{
	return rmdir(folder);
}

static struct sql *make(const char *text)
{
	struct sql *sql;

	assert_int_equal(sql_open(path, &create, &sql, NULL), 0);
	assert_int_equal(sql_execute(sql, text, NULL), 0);
	return sql;
}

static void expect(int r, int expected, const struct error *err, const char *text)
{
	char whole[256];

	snprintf(whole, sizeof(whole), text, path);
	assert_int_equal(r, expected);
	assert_string_equal(err->text, whole);
}

static void test_values(void **state)
{
	static const char name[] = "a\0b";
	struct sql *sql = make("CREATE TABLE t(a, b, c, d, e)");
	struct sql_statement *st;
	const char *bytes;
	size_t size;

	assert_int_equal(sql_prepare(sql, "INSERT INTO t VALUES(?, ?, ?, ?, ?)", &st, NULL), 0);
	sql_bind_integer(st, 1, -5);
	sql_bind_real(st, 2, 0.5);
	sql_bind_text(st, 3, "text");
	sql_bind_name(st, 4, "name and more", 4);
	sql_bind_bytes(st, 5, name, sizeof(name));
	assert_int_equal(sql_run(st, NULL), SQL_DONE);
	assert_int_equal(sql_last_id(sql), 1);
	sql_bind_real(st, 2, NAN);
	sql_bind_text(st, 3, NULL);
	assert_int_equal(sql_run(st, NULL), SQL_DONE); /* what was bound before is gone */
	sql_statement_free(st);

	assert_int_equal(sql_prepare(sql, "SELECT * FROM t ORDER BY rowid", &st, NULL), 0);
	assert_int_equal(sql_step(st, NULL), SQL_ROW);
	assert_int_equal(sql_integer(st, 0), -5);
	assert_true(sql_real(st, 1) == 0.5);
	assert_string_equal(sql_text(st, 2), "text");
	assert_string_equal(sql_text(st, 3), "name");
	bytes = sql_bytes(st, 4, &size);
	assert_int_equal(size, sizeof(name));
	assert_memory_equal(bytes, name, sizeof(name));
	assert_int_equal(sql_step(st, NULL), SQL_ROW);
	assert_true(sql_is_null(st, 0));
	assert_int_equal(sql_integer(st, 0), 0);
	assert_true(isnan(sql_real(st, 1)));
	assert_string_equal(sql_text(st, 2), "");
	assert_null(sql_bytes(st, 4, &size));
	assert_int_equal(size, 0);
	assert_int_equal(sql_step(st, NULL), SQL_DONE);
	sql_statement_free(st);
	sql_close(sql);
}

static void test_number(void **state)
{
	struct sql *sql = make("CREATE TABLE t(a)");
	int64_t n = 7;

	assert_int_equal(sql_number(sql, "SELECT a FROM t", &n, NULL), -EBADMSG);
	assert_int_equal(n, 7);
	assert_int_equal(sql_number(sql, "SELECT count(*) FROM t", &n, NULL), 0);
	assert_int_equal(n, 0);
	assert_true(sql_number(sql, "SELECT no such thing", &n, NULL) < 0);
	sql_close(sql);
}

static void test_rollback(void **state)
{
	struct sql *sql = make("CREATE TABLE t(a)");
	int64_t n;

	assert_false(sql_rollback(sql));
	assert_int_equal(sql_execute(sql, "BEGIN; INSERT INTO t VALUES(1)", NULL), 0);
	assert_true(sql_rollback(sql));
	assert_int_equal(sql_number(sql, "SELECT count(*) FROM t", &n, NULL), 0);
	assert_int_equal(n, 0);
	sql_close(sql);
}

static void test_missing(void **state)
{
	struct error err = ERROR_INIT;
	struct sql *sql = NULL;
	int r = sql_open(path, &(struct sql_options){.mode = SQL_WRITE}, &sql, &err);

	expect(r, -ENOENT, &err, "cannot open %s: No such file or directory");
	assert_null(sql);
	assert_int_equal(access(path, F_OK), -1);
}

static void test_reading_changes_nothing(void **state)
{
	struct sql *sql = make("CREATE TABLE t(a)");
	int64_t n;

	sql_close(sql);
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_READ}, &sql, NULL), 0);
	assert_int_equal(sql_execute(sql, "INSERT INTO t VALUES(1)", NULL), -EACCES);
	assert_int_equal(sql_number(sql, "SELECT count(*) FROM t", &n, NULL), 0);
	assert_int_equal(n, 0);
	sql_close(sql);
}

static void test_damaged(void **state)
{
	struct error err = ERROR_INIT;
	FILE *file = fopen(path, "w");
	struct sql *sql;
	int r;

	for (int i = 0; i < 100; i++)
		fputs("no database ", file);
	fclose(file);
	assert_int_equal(sql_open(path, &create, &sql, &err), 0);
	r = sql_execute(sql, "CREATE TABLE t(a)", &err);
	expect(r, -EBADMSG, &err, "%s is damaged (file is not a database): make a new one");
	sql_close(sql);
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_READ}, &sql, &err), 0);
	r = sql_execute(sql, "SELECT * FROM sqlite_master", &err);
	expect(r, -EBADMSG, &err, "%s is damaged (file is not a database)");
	sql_close(sql);
}

static void test_busy(void **state)
{
	struct error err = ERROR_INIT;
	struct sql *one = make("BEGIN IMMEDIATE"), *other;
	int r;

	assert_int_equal(sql_open(path, &create, &other, &err), 0);
	r = sql_execute(other, "BEGIN IMMEDIATE", &err);
	expect(r, -EBUSY, &err, "%s is in use: try again");
	sql_close(one); /* rolls back */
	assert_int_equal(sql_execute(other, "BEGIN IMMEDIATE", &err), 0);
	sql_close(other);
}

static void test_full(void **state)
{
	struct error err = ERROR_INIT;
	struct sql *sql = make("CREATE TABLE t(a)");
	int r;

	assert_int_equal(sql_execute(sql, "PRAGMA max_page_count = 3", &err), 0);
	r = sql_execute(sql, "INSERT INTO t VALUES(zeroblob(100000))", &err);
	expect(r, -ENOSPC, &err, "%s cannot grow (database or disk is full): No space left on device");
	sql_close(sql);
}

#define TEST(function) cmocka_unit_test_teardown(function, remove_files)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_values),
	    TEST(test_number),
	    TEST(test_rollback),
	    TEST(test_missing),
	    TEST(test_reading_changes_nothing),
	    TEST(test_damaged),
	    TEST(test_busy),
	    TEST(test_full),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
