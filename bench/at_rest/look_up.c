/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up, at random, paths of the N samples that put.c names.
 *
 *	look_up fill lmdb|redis|stat STORE N         makes the entries: 24 bytes per path, or empty files
 *	look_up run WAY STORE N SECONDS SEED
 *
 * Ways: snapshot and snapshot-many (STORE is a dataset, the latter looks up 256 at a time), sqlite (its
 * meta.db), lmdb (a folder), redis (a socket, pipelined, 256 at a time), stat (a folder of files). Prints, as
 * JSON, how long opening took, and the paths found per second and per CPU second of this process. The program
 * ends with an error where it does not find a path.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "common.h"
#include "dataset/snapshot.h"

#if __has_include(<lmdb.h>)
#define HAVE_LMDB 1
#include <lmdb.h>
#endif

#define VALUE_BYTES 24 /* the size of a snapshot's record */

struct way {
	const char *name;
	void *(*open)(const char *store);
	void *(*open_to_fill)(const char *store);
	void (*fill)(void *opened, uint64_t n);
	void (*look_up)(void *opened, uint64_t n, uint64_t *state, unsigned count);
};

static void *open_snapshot(const char *store)
{
	struct snapshot *s;
	struct error err = ERROR_INIT;

	need(snapshot_open(store, &s, &err) == 0, err.text);
	return s;
}

static void look_up_snapshot(void *s, uint64_t n, uint64_t *state, unsigned count)
{
	struct snapshot_sample sample;
	uint64_t number;
	char path[PATH_BYTES];

	for (unsigned i = 0; i < count; i++) {
		path_of(path, next_random(state) % n, n);
		need(snapshot_find(s, path, PATH_BYTES, &number) == 0 &&
			 snapshot_sample_get(s, number, &sample) == 0,
		     "a path is not in the snapshot");
	}
}

static void look_up_snapshot_many(void *s, uint64_t n, uint64_t *state, unsigned count)
{
	struct snapshot_sample sample;
	struct path_text paths[PIPELINE];
	uint64_t numbers[PIPELINE];
	char text[PIPELINE][PATH_BYTES];

	for (unsigned i = 0; i < count; i++) {
		path_of(text[i], next_random(state) % n, n);
		paths[i] = (struct path_text){text[i], PATH_BYTES};
	}
	need(snapshot_find_many(s, paths, count, numbers) == count, "a path is not in the snapshot");
	for (unsigned i = 0; i < count; i++)
		need(snapshot_sample_get(s, numbers[i], &sample) == 0, "a sample is not in the snapshot");
}

static void *open_sqlite(const char *store)
{
	sqlite3 *db;
	sqlite3_stmt *st;

	need(sqlite3_open_v2(store, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
		 sqlite3_exec(db, "PRAGMA mmap_size = 17179869184", NULL, NULL, NULL) == SQLITE_OK &&
		 sqlite3_prepare_v2(db, "SELECT chunk, record, offset, bytes, xxh3 FROM path WHERE path = ?1",
				    -1, &st, NULL) == SQLITE_OK &&
		 sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) == SQLITE_OK,
	     "no SQLite database");
	return st;
}

static void look_up_sqlite(void *st, uint64_t n, uint64_t *state, unsigned count)
{
	char path[PATH_BYTES];

	for (unsigned i = 0; i < count; i++) {
		path_of(path, next_random(state) % n, n);
		sqlite3_bind_text(st, 1, path, PATH_BYTES, SQLITE_STATIC);
		need(sqlite3_step(st) == SQLITE_ROW, "not in SQLite");
		(void)sqlite3_column_int64(st, 2);
		sqlite3_reset(st);
	}
}

#ifdef HAVE_LMDB
struct lmdb {
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
};

static void *open_lmdb_with(const char *store, unsigned flags)
{
	static struct lmdb l;

	need(mdb_env_create(&l.env) == 0 && mdb_env_set_mapsize(l.env, UINT64_C(16) << 30) == 0 &&
		 mdb_env_open(l.env, store, flags | MDB_NOSYNC, 0644) == 0 &&
		 mdb_txn_begin(l.env, NULL, flags, &l.txn) == 0 && mdb_dbi_open(l.txn, NULL, 0, &l.dbi) == 0,
	     "no LMDB");
	return &l;
}

static void *open_lmdb(const char *store)
{
	return open_lmdb_with(store, MDB_RDONLY);
}

static void *open_lmdb_to_fill(const char *store)
{
	need(mkdir(store, 0755) == 0, "cannot create LMDB's folder");
	return open_lmdb_with(store, 0);
}

static void fill_lmdb(void *opened, uint64_t n)
{
	struct lmdb *l = opened;
	char path[PATH_BYTES], value[VALUE_BYTES] = {0};

	for (uint64_t i = 0; i < n; i++) {
		MDB_val k = {PATH_BYTES, path}, v = {VALUE_BYTES, value};

		path_of(path, i, n);
		need(mdb_put(l->txn, l->dbi, &k, &v, MDB_APPEND) == 0, "cannot store a value in LMDB");
	}
	need(mdb_txn_commit(l->txn) == 0, "cannot commit to LMDB");
}

static void look_up_lmdb(void *opened, uint64_t n, uint64_t *state, unsigned count)
{
	struct lmdb *l = opened;
	char path[PATH_BYTES];

	for (unsigned i = 0; i < count; i++) {
		MDB_val k = {PATH_BYTES, path}, v;

		path_of(path, next_random(state) % n, n);
		need(mdb_get(l->txn, l->dbi, &k, &v) == 0, "not in LMDB");
	}
}
#endif

#define GET_HEAD    "*2\r\n$3\r\nGET\r\n$22\r\n"
#define SET_HEAD    "*3\r\n$3\r\nSET\r\n$22\r\n"
#define VALUE_HEAD  "$24\r\n"
#define TEXT(bytes) bytes, sizeof(bytes) - 1

static char *append(char *at, const char *data, size_t bytes)
{
	return (char *)memcpy(at, data, bytes) + bytes;
}

static void *open_redis(const char *store)
{
	static int fd;

	fd = unix_connect(store);
	return &fd;
}

static void fill_redis(void *opened, uint64_t n)
{
	char buffer[PIPELINE * 128], replies[PIPELINE * 5], value[VALUE_BYTES] = {0};

	for (uint64_t i = 0; i < n;) {
		char *at = buffer;
		size_t count = 0;

		for (; count < PIPELINE && i < n; count++, i++) {
			at = append(at, TEXT(SET_HEAD));
			path_of(at, i, n);
			at = append(at + PATH_BYTES, TEXT("\r\n" VALUE_HEAD));
			at = append(at, value, VALUE_BYTES);
			at = append(at, TEXT("\r\n"));
		}
		send_all(*(int *)opened, buffer, (size_t)(at - buffer));
		receive_all(*(int *)opened, replies, count * 5);
		for (size_t k = 0; k < count; k++)
			need(memcmp(replies + k * 5, "+OK\r\n", 5) == 0, "Redis refuses a key");
	}
}

static void look_up_redis(void *opened, uint64_t n, uint64_t *state, unsigned count)
{
	enum { REPLY_BYTES = sizeof(VALUE_HEAD) - 1 + VALUE_BYTES + 2 };
	static char buffer[PIPELINE * 64], replies[PIPELINE * REPLY_BYTES];
	char *at = buffer;

	for (unsigned i = 0; i < count; i++) {
		at = append(at, TEXT(GET_HEAD));
		path_of(at, next_random(state) % n, n);
		at = append(at + PATH_BYTES, TEXT("\r\n"));
	}
	send_all(*(int *)opened, buffer, (size_t)(at - buffer));
	receive_all(*(int *)opened, replies, (size_t)count * REPLY_BYTES);
	for (unsigned i = 0; i < count; i++)
		need(memcmp(replies + (size_t)i * REPLY_BYTES, TEXT(VALUE_HEAD)) == 0, "not in Redis");
}

static void *open_folder(const char *store)
{
	static int fd;

	fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	need(fd >= 0, "no folder");
	return &fd;
}

static void fill_folder(void *opened, uint64_t n)
{
	char path[PATH_BYTES + 1] = "";

	for (uint64_t i = 0; i < n; i++) {
		path_of(path, i, n);
		path[9] = '\0';
		mkdirat(*(int *)opened, path, 0755);
		path[9] = '/';
		int fd = openat(*(int *)opened, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

		need(fd >= 0, "cannot create a file in the folder");
		close(fd);
	}
}

static void look_up_file(void *opened, uint64_t n, uint64_t *state, unsigned count)
{
	struct stat st;
	char path[PATH_BYTES + 1] = "";

	for (unsigned i = 0; i < count; i++) {
		path_of(path, next_random(state) % n, n);
		need(fstatat(*(int *)opened, path, &st, 0) == 0, "no such file");
	}
}

static const struct way ways[] = {
    {"snapshot", open_snapshot, NULL, NULL, look_up_snapshot},
    {"snapshot-many", open_snapshot, NULL, NULL, look_up_snapshot_many},
    {"sqlite", open_sqlite, NULL, NULL, look_up_sqlite},
#ifdef HAVE_LMDB
    {"lmdb", open_lmdb, open_lmdb_to_fill, fill_lmdb, look_up_lmdb},
#endif
    {"redis", open_redis, open_redis, fill_redis, look_up_redis},
    {"stat", open_folder, open_folder, fill_folder, look_up_file},
};

static void run(const struct way *way, const char *store, uint64_t n, double seconds, uint64_t seed)
{
	uint64_t state = seed * 2654435761u + 88172645463325252u, done = 0;
	double start = clock_now(CLOCK_MONOTONIC), end, cpu;
	void *opened = way->open(store);
	double opened_at = clock_now(CLOCK_MONOTONIC);

	cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID);
	do {
		way->look_up(opened, n, &state, PIPELINE);
		done += PIPELINE;
		end = clock_now(CLOCK_MONOTONIC);
	} while (end - opened_at < seconds);
	cpu = clock_now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"open_ms\": %.4f, \"n\": %llu, \"s\": %.6f, \"cpu_s\": %.6f}\n", (opened_at - start) * 1e3,
	       (unsigned long long)done, end - opened_at, cpu);
}

int main(int argc, char **argv)
{
	const struct way *way = NULL;
	int filling = argc == 5 && strcmp(argv[1], "fill") == 0;

	need(filling || argc == 7, "usage: look_up fill WAY STORE N | look_up run WAY STORE N SECONDS SEED");
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(ways[i].name, argv[2]) == 0)
			way = &ways[i];
	need(way != NULL && (!filling || way->fill != NULL), "no such way");
	uint64_t n = strtoull(argv[4], NULL, 10);

	need(n > 0 && n <= 100000000, "N is out of range");
	if (filling)
		way->fill(way->open_to_fill(argv[3]), n);
	else
		run(way, argv[3], n, strtod(argv[5], NULL), strtoull(argv[6], NULL, 10));
	return 0;
}
