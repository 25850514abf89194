/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Changes a dataset: adds, replaces and deletes samples. All of it becomes visible at writer_commit(), or
 * nothing: until then readers see the version before, and so they do after a crash.
 *
 * Chunks are written as they fill and stay when the writer is interrupted; the next writer may adopt them
 * or drop them, one by one, before it adds. Those that it does neither with are dropped by its commit.
 *
 * One writer at a time holds a dataset. Not thread-safe; writing goes on in a thread of its own.
 */

#include "dataset/chunk_builder.h"
#include "dataset/meta.h"
#include "dataset/store.h"

struct writer;

enum writer_purpose {
	WRITER_PACK,    /* the dataset is made when it is missing */
	WRITER_CHANGE,  /* a dataset that exists */
	WRITER_REBUILD, /* writer_rebuild(): metadata that is missing is made, damaged metadata put aside */
};

/* chunk_bytes: CHUNK_MIN_BYTES .. CHUNK_MAX_BYTES. -EBUSY: another writer; -ENOTEMPTY: a directory that is
 * no dataset and not empty; -ESTALE: a dataset that lost its metadata (run rebuild). */
int writer_open(const char *dataset_path, enum writer_purpose purpose, uint64_t chunk_bytes,
		struct writer **ret, struct error *err);

/* Drops what was not committed. A new dataset to which nothing was ever written disappears again. */
void writer_free(struct writer *w);

/* Each chunk has a SHA-256 of its file, in metadata and snapshot, from this commit on: against people who may
 * write chunks but not the snapshot. Where the dataset has them already this is done without a call. Before
 * the first writer_add(), or before writer_rebuild(), which alone can give them to chunks that exist.
 * -EEXIST: chunks without them; err says what to run. */
int writer_keep_digests(struct writer *w, struct error *err);

/* The state before this writer; its metadata, for lookups. Borrowed. */
const struct meta_info *writer_info(const struct writer *w);
struct meta *writer_meta(const struct writer *w);
struct store *writer_store(const struct writer *w);

/* What an interrupted writer left: whole chunks, in id order. Borrowed. */
const struct store_object *writer_leftovers(const struct writer *w, size_t *ret_n);
/* Takes leftover i into this commit: in ascending order, before the first writer_add(). */
int writer_adopt(struct writer *w, size_t i, struct error *err);

/* The sample's data is copied. A path that exists already is replaced. */
int writer_add(struct writer *w, const struct chunk_sample *sample, struct error *err);

/* The path need not exist. */
int writer_delete(struct writer *w, const char *path, size_t path_length, struct error *err);

/* Hands the samples added so far to the store as a chunk, though it is not full. */
int writer_flush(struct writer *w, struct error *err);

struct writer_result {
	uint64_t version;  /* the one before when there was nothing to commit */
	uint64_t n_chunks; /* of this commit (rebuild: all) */
	uint64_t n_paths;  /* of the dataset now */
};

/* Makes everything durable and visible. Nothing has changed on failure, but for -ESTALE: committed, only
 * the snapshot could not be replaced (err says so). */
int writer_commit(struct writer *w, struct writer_result *ret, struct error *err);

/* Forgets the metadata and replays all chunks of the store in id order; commit makes it so. Chunks whose
 * head is damaged are left out, counted and told to `lost`. */
typedef void writer_lost_callback(const struct chunk_id *id, const char *text, void *context);
int writer_rebuild(struct writer *w, writer_lost_callback *lost, void *context, uint64_t *ret_n_lost,
		   struct error *err);

/* Writes the snapshot of the metadata's version anew; needs no commit. -ENODATA: nothing was ever packed. */
int writer_snapshot(struct writer *w, struct error *err);
