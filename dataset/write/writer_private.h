/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that writer.c and writer_open.c share. */

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/backend.h"
#include "dataset/writer.h"
#include "put_queue.h"
#include "writer_lock.h"

struct writer {
	char *path; /* as the caller named it */
	struct place *place;
	int dir_fd, parent_fd;    /* the folder, and, while it may be removed again, the one that it is in */
	struct writer_lock *lock; /* NULL elsewhere */
	bool made_directory;      /* by this writer, which removes it if nothing is committed */
	uint64_t chunk_bytes;
	enum writer_purpose purpose;
	bool keeps_digests;
	int level; /* compression level of chunks begun from now on; 0: not compressed */
	struct store *store;
	struct meta *meta;
	bool begun; /* the metadata transaction */
	struct meta_info info;
	struct chunk_id_source ids;
	struct chunk_id floor; /* below all ids that this writer makes */

	struct store_object
	    *objects; /* contents of the store, in id order; the leftovers are the last ones */
	size_t n_objects;
	size_t n_leftovers;
	size_t n_taken; /* leftovers up to here were adopted or passed over */

	struct put_queue *queue;
	struct chunk_builder *current; /* being filled, or NULL */
	uint32_t current_flags;
	struct buffer chunks; /* struct chunk_id: of this commit, ascending */
	bool discards;        /* writer_discard() */
	bool rebuilt;
	bool takes_all; /* chunks of no version, too */
	uint64_t n_foreign;
	progress_callback *progress; /* or NULL */
	void *progress_context;

	/* For the snapshot of this commit, while chunks are replayed: one of them. */
	struct snapshot_builder *builder;
	struct snapshot_changes *changes;
	struct buffer drops; /* struct chunk_id: what the commit removes, in this order */
	uint64_t keep_from;  /* the oldest version that can be read from this commit on; 0: as before */

	uint64_t n_kept; /* snapshots, of the newest versions */

	char command[CHANGE_COMMAND];
	struct change change; /* counted while chunks are replayed */
	uint64_t run_paths,
	    run_records; /* when the chunks of the kind replayed last began; records in them */
	uint32_t run_flags;
	unsigned n_runs;
};

/* Returns the version of the snapshot; 0: there is none that can be read. */
uint64_t writer_snapshot_version(const struct writer *w);

/* Frees builder and changes. */
void writer_end_snapshot(struct writer *w);

/* Returns the oldest version that can be read once `version` is the newest. */
int writer_find_oldest(struct writer *w, uint64_t version, uint64_t *ret, struct error *err);

/* Snapshots of earlier versions, where the dataset is in a folder: keeps the newest one, if a writer that
 * failed, or an older program, has not; the one that is staged, whose version is committed; removes those
 * that are too many, or too old. */
void writer_keep_published(const struct writer *w);
uint64_t writer_newest_kept(const struct writer *w); /* 0: none is kept */
int writer_keep_staged(struct writer *w, uint64_t version, struct error *err);
int writer_trim_retained(const struct writer *w, uint64_t newest, struct backend_keep keep,
			 struct error *err);

/* Checks that the dataset is not frozen. -EROFS: it is, and this writer does not thaw it; -EBUSY: it was
 * frozen after the metadata were opened. */
int writer_check_frozen(const struct writer *w, struct error *err);

/* Returns the ids of all chunks that the metadata knows, ascending. */
int writer_known(struct writer *w, struct buffer *ret_ids, struct error *err);
bool writer_knows(const struct buffer *known, const struct chunk_id *id);

/* Lists the store's chunks again. */
int writer_list(struct writer *w, struct error *err);

/* Chunks that the commit removes: within its transaction; right before and behind it. */
int writer_drop_rows(struct writer *w, struct error *err);
int writer_drops_begin(struct writer *w, uint64_t version, struct error *err);
void writer_drops_end(struct writer *w);
