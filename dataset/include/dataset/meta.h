/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The metadata store: a dataset's version, its chunks and its paths. One op table; an engine is one file
 * (meta_sqlite.c: meta.db in the dataset's directory).
 *
 * It is a projection of the chunks: replaying them in id order rebuilds it (see `dieselctl rebuild`).
 *
 * Writing: meta_begin() takes the dataset's one writer lock and opens a transaction; nothing of it is seen
 * until meta_commit(), and nothing remains after meta_rollback() or a crash. Before it returns, meta_begin()
 * makes the pending floor durable: chunks at or above it that the store has and the metadata has not are
 * what an interrupted writer left. Readers see the last committed state.
 *
 * Thread-safety: a handle belongs to one thread at a time. Errors name the dataset.
 */

#include "dataset/chunk.h"
#include "dataset/digest.h"
#include "lib/error.h"

struct meta;

struct meta_info {
	uint64_t version; /* grows with every commit; 0: nothing was ever committed */
	uint64_t n_chunks;
	uint64_t n_paths;
	bool has_digests; /* each chunk has one: meta_keep_digests() */
	bool has_newest;  /* newest is set: the chunk with the highest id */
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

/* Returns 0 to go on, anything else to stop: the iteration returns it. */
typedef int meta_chunk_callback(const struct meta_chunk *chunk, void *context);
typedef int meta_path_callback(const struct meta_path *path, void *context);

struct meta_ops {
	int (*info)(struct meta *m, struct meta_info *ret, struct error *err);
	int (*begin)(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err);
	int (*clear)(struct meta *m, struct error *err);
	int (*add_chunk)(struct meta *m, const struct chunk_view *view, struct error *err);
	int (*keep_digests)(struct meta *m, struct error *err);
	int (*put_digest)(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
			  struct error *err);
	int (*commit)(struct meta *m, uint64_t version, struct error *err);
	void (*rollback)(struct meta *m, bool forget_pending);
	int (*find)(struct meta *m, const char *path, size_t path_length, struct meta_path *ret,
		    struct error *err);
	int (*each_chunk)(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err);
	int (*each_path)(struct meta *m, meta_path_callback *callback, void *context, struct error *err);
	void (*free)(struct meta *m);
};

struct meta {
	const struct meta_ops *ops;
};

enum meta_mode {
	META_READ, /* undoes what a writer that died has left, where that is allowed */
	META_WRITE,
	META_CREATE,  /* and make it when missing */
	META_REPLACE, /* and put it aside and make it anew when it is damaged */
};

/* The metadata of a dataset, whichever engine it has.
 * -ENOENT, -EACCES, -EBADMSG: damaged; -EPROTONOSUPPORT: a newer version. */
int meta_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err);
/* DATASET/meta.db. */
#define META_SQLITE_FILE "meta.db"
int meta_sqlite_open(const char *dataset_path, enum meta_mode mode, struct meta **ret, struct error *err);
void meta_free(struct meta *m);

/* What it holds now. -errno of reading. */
int meta_info(struct meta *m, struct meta_info *ret, struct error *err);

/* floor: an id below all that this writer will make. ret tells the state found, with the pending floor of
 * an interrupted writer, if there was one. -EBUSY: another writer is at work. */
int meta_begin(struct meta *m, const struct chunk_id *floor, struct meta_info *ret, struct error *err);

/* Forgets all chunks and paths, within the transaction. */
int meta_clear(struct meta *m, struct error *err);

/* Replays one chunk, within the transaction: ids must ascend (-EINVAL). */
int meta_add_chunk(struct meta *m, const struct chunk_view *view, struct error *err);

/* From this transaction on each chunk has a digest: meta_put_digest() for all of them, those that are known
 * already too, and for each that is added. Raises the metadata's format, which older programs refuse. */
int meta_keep_digests(struct meta *m, struct error *err);
int meta_put_digest(struct meta *m, const struct chunk_id *id, const struct digest *sha256,
		    struct error *err);

/* version: above that of meta_begin(). No longer pending afterwards. A failure rolls back. */
int meta_commit(struct meta *m, uint64_t version, struct error *err);

/* Ends the transaction of meta_begin(), if one is open. forget_pending: no chunk was left behind, so the
 * pending floor goes too. */
void meta_rollback(struct meta *m, bool forget_pending);

/* ret->path is the caller's own. -ENOENT without a text. */
int meta_find(struct meta *m, const char *path, size_t path_length, struct meta_path *ret, struct error *err);

/* In id order; in no particular order. */
int meta_each_chunk(struct meta *m, meta_chunk_callback *callback, void *context, struct error *err);
int meta_each_path(struct meta *m, meta_path_callback *callback, void *context, struct error *err);
