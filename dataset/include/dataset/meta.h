/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The metadata store: a dataset's version, its chunks and its paths. Two engines implement one table of
 * operations: meta_sqlite.c (meta.db in the dataset's directory) and meta_redis.c (a Redis server, which
 * meta.redis in the dataset's directory names).
 *
 * The metadata derives from the chunks: replaying them in id order rebuilds it (see `dieselctl rebuild`).
 *
 * Writing: meta_begin() opens a transaction. Nothing of it is visible before meta_commit(), and nothing
 * remains of it after meta_rollback() or a crash. Before it returns, meta_begin() makes the pending floor
 * durable: chunks at or above it that are in the store but not in the metadata were left by an interrupted
 * writer. Readers see the last committed state. Of several simultaneous transactions only one can commit: all
 * functions of the others, from meta_begin() to meta_commit(), may return -EBUSY, and change nothing.
 *
 * Thread-safety: a handle belongs to one thread at a time. Errors name the dataset.
 */

#include "dataset/change.h"
#include "dataset/chunk.h"
#include "dataset/digest.h"
#include "lib/error.h"

struct meta;

struct meta_info {
	uint64_t version; /* grows with every commit; 0: nothing was ever committed */
	uint64_t n_chunks;
	uint64_t n_paths;
	bool has_digests;   /* each chunk has a digest: meta_keep_digests() */
	bool is_compressed; /* chunks may be compressed or external; this raises the metadata's format, so
			       older programs refuse it */
	bool has_newest;    /* newest is set: the chunk with the highest id */
	struct chunk_id newest;
	bool has_pending; /* pending is set: a writer is at work or was interrupted */
	struct chunk_id pending;
};

struct meta_chunk {
	struct chunk_id id;
	uint64_t file_bytes;
	uint64_t created_ns;
	uint64_t head_xxh3;
	uint32_t n_records;
	uint32_t payload_offset;
	uint32_t flags;  /* enum chunk_flag */
	bool has_sha256; /* the next field has the SHA-256 of the file, in its plain form */
	struct digest sha256;
};

struct meta_path {
	const char *path; /* borrowed, path_length bytes */
	size_t path_length;
	struct chunk_id chunk;
	uint32_t record_index;
	struct chunk_record record; /* name_offset and name_length mean nothing here */
};

/* Returns 0 to continue. Any other value ends the iteration, which returns that value. */
typedef int meta_chunk_callback(const struct meta_chunk *chunk, void *context);
typedef int meta_path_callback(const struct meta_path *path, void *context);
typedef int meta_change_callback(const struct change *change, void *context);

struct meta_ops {
	int (*info)(struct meta *m, struct meta_info *ret, struct error *err);
	int (*begin)(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err);
	int (*clear)(struct meta *m, struct error *err);
	int (*add_chunk)(struct meta *m, const struct chunk_view *view, struct error *err);
	int (*remove_chunk)(struct meta *m, const struct chunk_id *id, struct error *err);
	int (*keep_digests)(struct meta *m, struct error *err);
	int (*put_digest)(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
			  struct error *err);
	int (*put_change)(struct meta *m, const struct change *change, struct error *err);
	int (*commit)(struct meta *m, uint64_t version, const struct change *change, struct error *err);
	void (*rollback)(struct meta *m, bool forget_pending);
	int (*find)(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
		    struct error *err);
	int (*each_chunk)(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err);
	int (*each_path)(struct meta *m, meta_path_callback *callback, void *context, struct error *err);
	int (*each_change)(struct meta *m, meta_change_callback *callback, void *context, struct error *err);
	void (*free)(struct meta *m);
};

struct meta {
	const struct meta_ops *ops;
};

enum meta_mode {
	META_READ,  /* rolls back the changes of a writer that died, where permitted */
	META_CHECK, /* as META_READ, but reads everything first, to find damage now and not later */
	META_WRITE,
	META_CREATE,  /* as META_WRITE, and creates missing metadata */
	META_REPLACE, /* as META_CREATE, and moves damaged metadata aside and creates it again */
};

/* Returns true if a folder looks like a dataset, whole or not. */
bool meta_is_dataset(int dir_fd);

/* Opens the metadata of a dataset, with any engine. -EROFS: frozen (frozen.h), except with META_REPLACE.
 * -ENOENT; -EACCES; -EBADMSG: damaged; -EPROTONOSUPPORT: a newer version. */
int meta_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err);
/* dir_fd: the dataset's folder; -errno: it cannot be opened. */
int meta_open_at(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		 struct error *err);
/* The engine that keeps DATASET/meta.db. Errors as meta_open(). */
#define META_SQLITE_FILE "meta.db"
int meta_sqlite_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		     struct error *err);
/* The engine that keeps everything on the server that DATASET/meta.redis names. Errors as meta_open(), and
 * those of networks and servers: -ETIMEDOUT, -ENOSPC (the server's memory), ... */
#define META_REDIS_FILE "meta.redis"
#define META_REDIS_TMP  META_REDIS_FILE ".tmp" /* left by a writer that was killed */
int meta_redis_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		    struct error *err);
/* As meta_redis_open(), for a dataset that is new or has its metadata there:
 * redis://[USER:PASSWORD@]HOST[:PORT]/PREFIX. A URL without a password takes it from DIESEL_REDIS or
 * DIESEL_REDIS_FILE. -EEXIST: the metadata is elsewhere. */
int meta_redis_choose_at(int dir_fd, const char *dataset_path, const char *url, enum meta_mode mode,
			 struct meta **ret, struct error *err);
/* Returns the URL of the server, without user and password, in new memory. -ENOENT: the metadata is in
 * meta.db; -EXDEV: the folder is a copy of another dataset's, to which the metadata belongs. */
int meta_redis_url(int dir_fd, const char *dataset_path, char **ret, struct error *err);
/* Removes the metadata from the server, and then META_REDIS_FILE. The caller holds the dataset's writer lock.
 * *ret_n: number of removed keys. Errors as meta_redis_url(); a server that has lost the metadata is no
 * error.
 */
int meta_redis_remove(int dir_fd, const char *dataset_path, uint64_t *ret_n, struct error *err);
/* Makes a new folder the owner of the metadata of another one, which loses its META_REDIS_FILE: for a move. A
 * call that was interrupted between the two is repeated. */
int meta_redis_move(int from_fd, const char *from, int to_fd, const char *to, struct error *err);
/* Checks a URL. -EINVAL: the error text continues a sentence that begins with the URL's name. */
int meta_redis_check_url(const char *url, struct error *err);
void meta_free(struct meta *m);

/* Returns what the metadata holds now. -errno if the metadata cannot be read. */
int meta_info(struct meta *m, struct meta_info *ret, struct error *err);

/* Begins a transaction. floor is an id below all ids that this writer will make. *ret is the state found,
 * with the pending floor of an interrupted writer if there was one. */
int meta_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err);

/* Removes all chunks and paths, within the transaction. */
int meta_clear(struct meta *m, struct error *err);

/* Replays one chunk, within the transaction. Ids must ascend (-EINVAL). */
int meta_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err);

/* Removes a chunk that no path refers to any more, within the transaction. */
int meta_remove_chunk(struct meta *m, const struct chunk_id *id, struct error *err);

/* Gives every chunk a digest from this transaction on: call meta_put_digest() for all known chunks and for
 * each added one. This raises the metadata's format, so older programs refuse it. */
int meta_keep_digests(struct meta *m, struct error *err);
int meta_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
		    struct error *err);

/* Adds the log entry of an earlier version, within the transaction: for a copy of another dataset. */
int meta_put_change(struct meta *m, const struct change *change, struct error *err);

/* Commits. version must be above the version that meta_begin() returned. Clears the pending floor. change:
 * for the log; NULL: nothing is recorded. A failure rolls back. */
int meta_commit(struct meta *m, uint64_t version, const struct change *change, struct error *err);

/* Rolls back the transaction of meta_begin(), if one is open. forget_pending also clears the pending floor:
 * the caller left no chunk behind. */
void meta_rollback(struct meta *m, bool forget_pending);

/* Finds a sample by its path. ret->path is the path that the caller passed. -ENOENT leaves err unset. */
int meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret, struct error *err);

/* Call back for each chunk, in id order, and for each path, in no particular order. */
int meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err);
int meta_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err);
/* Calls back for each entry of the log, in order of versions. Versions before the log began, or written by an
 * older program, have no entry. -EBADMSG: the log is damaged. */
int meta_each_change(struct meta *m, meta_change_callback *callback, void *context, struct error *err);
