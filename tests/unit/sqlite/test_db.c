/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include "sqlite/db.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/diesel-sql-XXXXXX", path[64], journal[80], log_path[80], other_path[80];
static const struct sql_options look = {.mode = SQL_READ}, change = {.mode = SQL_WRITE};

static const struct sql_options create = {
    .mode = SQL_CREATE, .if_damaged = "make a new one", .if_busy = "try again"};

static int make_folder(void **state)
{
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(journal, sizeof(journal), "%s-journal", path);
	snprintf(log_path, sizeof(log_path), "%s-wal", path);
	snprintf(other_path, sizeof(other_path), "%s/other", folder);
	return 0;
}

static int remove_files(void **state)
{
	unlink(path);
	unlink(journal);
	unlink(log_path);
	unlink(other_path);
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

TEST_WITH(values_of_each_type_come_back, NULL, remove_files)
{
	static const char name[] = "a\0b";
	struct sql *sql = make("CREATE TABLE t(a, b, c, d, e)");
	struct sql_statement *st;
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
	assert_int_equal(sql_run(st, NULL), SQL_DONE); /* the earlier bindings are gone */
	sql_statement_free(st);

	assert_int_equal(sql_prepare(sql, "SELECT * FROM t ORDER BY rowid", &st, NULL), 0);
	assert_int_equal(sql_step(st, NULL), SQL_ROW);
	assert_int_equal(sql_integer(st, 0), -5);
	assert_true(sql_real(st, 1) == 0.5);
	assert_string_equal(sql_text(st, 2), "text");
	assert_string_equal(sql_text(st, 3), "name");
	const char *bytes = sql_bytes(st, 4, &size);
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

TEST_WITH(a_number_needs_a_row, NULL, remove_files)
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

TEST_WITH(a_rollback_undoes_what_is_open, NULL, remove_files)
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

TEST_WITH(a_missing_database_is_not_made, NULL, remove_files)
{
	struct error err = ERROR_INIT;
	struct sql *sql = NULL;
	int r = sql_open(path, &(struct sql_options){.mode = SQL_WRITE}, &sql, &err);

	expect(r, -ENOENT, &err, "cannot open %s: No such file or directory");
	assert_null(sql);
	assert_int_equal(access(path, F_OK), -1);
}

TEST_WITH(reading_changes_nothing, NULL, remove_files)
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

TEST_WITH(a_damaged_database_is_named, NULL, remove_files)
{
	struct error err = ERROR_INIT;
	FILE *file = fopen(path, "w");
	struct sql *sql;

	for (int i = 0; i < 100; i++)
		fputs("no database ", file);
	fclose(file);
	assert_int_equal(sql_open(path, &create, &sql, &err), 0);
	int r = sql_execute(sql, "CREATE TABLE t(a)", &err);
	expect(r, -EBADMSG, &err, "%s is damaged (file is not a database): make a new one");
	sql_close(sql);
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_READ}, &sql, &err), 0);
	r = sql_execute(sql, "SELECT * FROM sqlite_master", &err);
	expect(r, -EBADMSG, &err, "%s is damaged (file is not a database)");
	sql_close(sql);
}

TEST_WITH(a_busy_database_says_try_again, NULL, remove_files)
{
	struct error err = ERROR_INIT;
	struct sql *one = make("BEGIN IMMEDIATE"), *other;

	assert_int_equal(sql_open(path, &create, &other, &err), 0);
	int r = sql_execute(other, "BEGIN IMMEDIATE", &err);
	expect(r, -EBUSY, &err, "%s is in use: try again");
	sql_close(one); /* rolls back the transaction */
	assert_int_equal(sql_execute(other, "BEGIN IMMEDIATE", &err), 0);
	sql_close(other);
}

TEST_WITH(a_full_database_cannot_grow, NULL, remove_files)
{
	struct error err = ERROR_INIT;
	struct sql *sql = make("CREATE TABLE t(a)");

	assert_int_equal(sql_execute(sql, "PRAGMA max_page_count = 3", &err), 0);
	int r = sql_execute(sql, "INSERT INTO t VALUES(zeroblob(100000))", &err);
	expect(r, -ENOSPC, &err, "%s cannot grow (database or disk is full): No space left on device");
	sql_close(sql);
}

static int64_t count(struct sql *sql)
{
	int64_t n = -1;

	assert_int_equal(sql_number(sql, "SELECT count(1) FROM t", &n, NULL), 0);
	return n;
}

/* A writer process ends after it has written half of its transaction. */
static void leave_half(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct sql *sql;
		bool done = sql_open(path, &change, &sql, NULL) == 0 &&
			    sql_execute(sql,
					"PRAGMA cache_size = 2; BEGIN; DELETE FROM t;"
					"INSERT INTO t VALUES(zeroblob(100000))",
					NULL) == 0;

		_exit(done ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(journal, F_OK), 0);
}

TEST_WITH(a_killed_writer, NULL, remove_files)
{
	struct sql *sql = make("CREATE TABLE t(a); INSERT INTO t VALUES(zeroblob(50000)), (2), (3)");
	struct stat before, after;

	sql_close(sql);
	leave_half();
	assert_int_equal(stat(path, &before), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sql_open(path, &look, &sql, NULL), 0);
		assert_int_equal(count(sql), 3);
		sql_close(sql);
	}
	assert_int_equal(stat(path, &after), 0);
	assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
	assert_int_equal(access(journal, F_OK), 0);
	assert_int_equal(sql_open(path, &change, &sql, NULL), 0);
	assert_int_equal(count(sql), 3);
	assert_int_equal(access(journal, F_OK), -1);
	sql_close(sql);
}

/* A reader sees committed data, also while a writer is at work, and never half a transaction. */
TEST_WITH(looking_while_others_write, NULL, remove_files)
{
	struct sql *writer = make("CREATE TABLE t(a)"), *reader;

	assert_int_equal(sql_open(path, &look, &reader, NULL), 0);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(sql_execute(writer, "BEGIN IMMEDIATE; INSERT INTO t VALUES(1)", NULL), 0);
		assert_int_equal(count(reader), i - 1);
		assert_int_equal(sql_execute(writer, "COMMIT", NULL), 0);
		assert_int_equal(count(reader), i);
	}
	assert_int_equal(sql_execute(writer, "BEGIN EXCLUSIVE", NULL), 0);
	assert_int_equal(sql_execute(reader, "SELECT * FROM t", NULL), -EBUSY);
	sql_close(writer);
	assert_int_equal(count(reader), 3);
	sql_close(reader);
}

/* A database with a log can also be read without the files that SQLite would create next to it. */
TEST_WITH(looking_at_a_log, NULL, remove_files)
{
	const struct sql_options shared = {.mode = SQL_CREATE, .shares_log = true};
	char shm[80];
	struct sql *writer, *reader;

	snprintf(shm, sizeof(shm), "%s-shm", path);
	assert_int_equal(sql_open(path, &shared, &writer, NULL), 0);
	assert_int_equal(sql_execute(writer, "PRAGMA journal_mode = WAL; CREATE TABLE t(a)", NULL), 0);
	for (int i = 1; i < 4; i++) {
		assert_int_equal(sql_execute(writer, "INSERT INTO t VALUES(1)", NULL), 0);
		assert_int_equal(sql_open(path, &look, &reader, NULL), 0);
		assert_int_equal(count(reader), i);
		sql_close(reader);
		assert_int_equal(access(log_path, F_OK), 0);
	}
	sql_close(writer);
	assert_int_equal(access(log_path, F_OK), -1);
	assert_int_equal(sql_open(path, &look, &reader, NULL), 0);
	assert_int_equal(count(reader), 3);
	assert_int_equal(access(log_path, F_OK), -1);
	assert_int_equal(access(shm, F_OK), -1);
	sql_close(reader);
}

TEST_WITH(what_is_no_file, NULL, remove_files)
{
	struct sql *sql = make("CREATE TABLE t(a)");
	struct error err = ERROR_INIT;

	sql_close(sql);
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_NEW}, &sql, &err), -EEXIST);
	assert_int_equal(rename(path, other_path), 0);
	assert_int_equal(symlink("other", path), 0);
	expect(sql_open(path, &change, &sql, &err), -ELOOP, &err,
	       "cannot open %s: the path is a link. Give the path of the link's target");
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_NEW}, &sql, &err), -EEXIST);
	assert_int_equal(sql_open(path, &look, &sql, &err), 0); /* without harm to any process */
	sql_close(sql);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	expect(sql_open(path, &look, &sql, &err), -EINVAL, &err, "cannot open %s: not a regular file");
	expect(sql_open(path, &create, &sql, &err), -EINVAL, &err, "cannot open %s: not a regular file");
	unlink(path);
	assert_int_equal(link(other_path, path), 0);
	if (geteuid() == 0)
		expect(sql_open(path, &change, &sql, &err), -EMLINK, &err,
		       "cannot open %s: the file has other names (hard links) elsewhere");
}

TEST_WITH(other_tables_are_not_ours, NULL, remove_files)
{
	static const char *const ours[] = {"CREATE TABLE t(a, b)",
					   "CREATE TABLE t(a, b); CREATE INDEX i ON t(b)", NULL};
	static const char *const others[] = {"CREATE VIEW v AS SELECT 1", "CREATE TABLE u(a)",
					     "CREATE INDEX j ON t(a)",
					     "DROP TABLE t; CREATE TABLE t(a, b, c)",
					     "CREATE TRIGGER g AFTER INSERT ON t BEGIN SELECT 1; END"};
	struct sql *sql = make("CREATE TABLE t( a,  b)");
	struct error err = ERROR_INIT;

	assert_int_equal(sql_check_tables(sql, ours, NULL), 0);
	assert_int_equal(sql_execute(sql, "CREATE INDEX i ON t(b)", NULL), 0);
	assert_int_equal(sql_check_tables(sql, ours, NULL), 0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		assert_int_equal(sql_execute(sql, "BEGIN", NULL), 0);
		assert_int_equal(sql_execute(sql, others[i], NULL), 0);
		assert_int_equal(sql_check_tables(sql, ours, &err), -EBADMSG);
		sql_rollback(sql);
	}
	expect(-EBADMSG, -EBADMSG, &err,
	       "%s has tables or other content that DIESEL does not create: make a new one");
	sql_close(sql);
}

TEST_WITH(work_has_an_end, NULL, remove_files)
{
	struct sql *sql = make("CREATE TABLE t(a)");
	struct error err = ERROR_INIT;
	int64_t n;

	sql_close(sql);
	assert_int_equal(sql_open(path, &look, &sql, NULL), 0);
	expect(
	    sql_number(sql,
		       "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c) SELECT max(i) FROM c",
		       &n, &err),
	    -EBADMSG, &err, "%s is damaged (a query does not end)");
	assert_int_equal(count(sql), 0); /* the next statement has a limit of its own */
	sql_close(sql);
}

int main(void)
{
	return run_unit_tests(make_folder, remove_folder);
}
