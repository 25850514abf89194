/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The metadata store: a dataset's version, its chunks and its paths. One op table; an engine is one file
 * (meta_sqlite.c: meta.db in the dataset's directory; meta_redis.c: a Redis server, which meta.redis there
 * names).
 *
 * It is a projection of the chunks: replaying them in id order rebuilds it (see `dieselctl rebuild`).
 *
 * Writing: meta_begin() opens a transaction. Nothing of it is visible before meta_commit(), and nothing
 * remains of it after meta_rollback() or a crash. Before it returns, meta_begin() makes the pending floor
 * durable: chunks at or above it that are in the store but not in the metadata were left by an interrupted
 * writer. Readers see the last committed state. Of several transactions at once one alone can commit: all
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
	bool has_digests;   /* each chunk has one: meta_keep_digests() */
	bool is_compressed; /* chunks may be, which raises the metadata's format: older programs refuse it */
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
	bool has_sha256; /* of the whole file */
	struct digest sha256;
};

struct meta_path {
	const char *path; /* borrowed, path_length bytes */
	size_t path_length;
	struct chunk_id chunk;
	uint32_t record_index;
	struct chunk_record record; /* name_offset and name_length mean nothing here */
};

/* Returns 0 to go on. Anything else ends the iteration, which returns it. */
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
	META_READ,  /* rolls back what a writer that died has left, where that is permitted */
	META_CHECK, /* as META_READ, and looks at all of it: what cannot be read later fails now */
	META_WRITE,
	META_CREATE,  /* as META_WRITE, and creates it if it is missing */
	META_REPLACE, /* as META_CREATE, and puts it aside and creates it anew if it is damaged */
};

/* Returns true if a folder looks like a dataset, whole or not. */
bool meta_is_dataset(int dir_fd);

/* Opens the metadata of a dataset, whichever engine it has. -EROFS: it is frozen (frozen.h); META_REPLACE
 * opens all the same. -ENOENT; -EACCES; -EBADMSG: damaged; -EPROTONOSUPPORT: a newer version. */
int meta_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err);
/* dir_fd: the dataset's folder; -errno: it cannot be opened. */
int meta_open_at(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		 struct error *err);
/* The engine that keeps DATASET/meta.db. Errors as meta_open(). */
#define META_SQLITE_FILE "meta.db"
int meta_sqlite_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		     struct error *err);
/* The engine that keeps everything on the server that DATASET/meta.redis names. Errors as meta_open(), and
 * all that networks and servers have: -ETIMEDOUT, -ENOSPC (the server's memory), ... */
#define META_REDIS_FILE "meta.redis"
#define META_REDIS_TMP  META_REDIS_FILE ".tmp" /* what a writer that was killed leaves of it */
int meta_redis_open(int dir_fd, const char *dataset_path, enum meta_mode mode, struct meta **ret,
		    struct error *err);
/* As meta_redis_open(), for a dataset that is new or has its metadata there:
 * redis://[USER:PASSWORD@]HOST[:PORT]/PREFIX. A URL without a password takes it from DIESEL_REDIS or
 * DIESEL_REDIS_FILE. -EEXIST: the metadata is elsewhere. */
int meta_redis_choose(const char *dataset_path, const char *url, enum meta_mode mode, struct meta **ret,
		      struct error *err);
int meta_redis_choose_at(int dir_fd, const char *dataset_path, const char *url, enum meta_mode mode,
			 struct meta **ret, struct error *err);
/* -EINVAL; the text goes on after the URL's name. */
int meta_redis_check_url(const char *url, struct error *err);
void meta_free(struct meta *m);

/* Returns what the metadata holds now. -errno if the metadata cannot be read. */
int meta_info(struct meta *m, struct meta_info *ret, struct error *err);

/* floor is an id below all those that this writer will make. *ret is the state that was found, with the
 * pending floor of an interrupted writer if there was one. */
int meta_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err);

/* Forgets all chunks and paths, within the transaction. */
int meta_clear(struct meta *m, struct error *err);

/* Replays one chunk, within the transaction: ids must ascend (-EINVAL). */
int meta_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err);

/* Forgets a chunk of which no path lies in it any more, within the transaction. */
int meta_remove_chunk(struct meta *m, const struct chunk_id *id, struct error *err);

/* From this transaction on every chunk has a digest: call meta_put_digest() for all chunks that are known
 * already and for each that is added. This raises the metadata's format, which older programs then refuse. */
int meta_keep_digests(struct meta *m, struct error *err);
int meta_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
		    struct error *err);

/* version is above the one that meta_begin() returned. Clears the pending floor. change: for the log; NULL:
 * nothing is recorded. A failure rolls back. */
int meta_commit(struct meta *m, uint64_t version, const struct change *change, struct error *err);

/* Ends the transaction of meta_begin(), if one is open. With forget_pending, which says that no chunk was
 * left behind, the pending floor is cleared too. */
void meta_rollback(struct meta *m, bool forget_pending);

/* ret->path is the path that the caller passed. -ENOENT leaves err unset. */
int meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret, struct error *err);

/* Chunks come in id order, paths in no particular order. */
int meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err);
int meta_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err);
/* The log, in order of versions: from where it begins, and without those that an older program has written.
 * -EBADMSG: it is damaged. */
int meta_each_change(struct meta *m, meta_change_callback *callback, void *context, struct error *err);
