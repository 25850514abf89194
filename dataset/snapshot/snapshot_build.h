/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds a snapshot: add all chunks in id order, then all paths in any order, then write the file. Memory is
 * bounded, however many paths there are: they are sorted beside the dataset (spill_sort.h). Chunks, with some
 * 100 bytes each, are kept. Not thread-safe.
 */

#include "dataset/meta.h"
#include "dataset/snapshot.h"
#include "lib/progress.h"

struct snapshot_builder;

#define SNAPSHOT_BUILD_BYTES ((size_t)256 << 20) /* of memory, at most */

/* dir_fd: where there is room to sort; borrowed. */
int snapshot_builder_new(int dir_fd, size_t budget, struct snapshot_builder **ret);
void snapshot_builder_free(struct snapshot_builder *b);

/* Has it told how far it is with this many paths. */
void snapshot_builder_show(struct snapshot_builder *b, uint64_t n_paths, progress_callback *progress,
			   void *context);

/* A chunk that turns out to hold no live sample is left out of the snapshot. -EINVAL: it does not come in id
 * order or behind a path, or it has a digest and the others have none, or the reverse. */
int snapshot_builder_add_chunk(struct snapshot_builder *b, const struct meta_chunk *chunk);

/* Of records with one path the last one, in storage order, counts. -EINVAL: its chunk is unknown, or it is
 * not as chunks have records; -EOVERFLOW: too many samples for one snapshot; -errno of the file that sorts.
 */
int snapshot_builder_add_path(struct snapshot_builder *b, const struct meta_path *path);

/* Writes the file; once. fd: empty, to be read and written; origin: names the dataset. -EEXIST: a path is
 * both a file and a directory (err names it); -E2BIG: what no accident makes; -errno. */
int snapshot_builder_finish(struct snapshot_builder *b, uint64_t version, uint64_t created_ns, int fd,
			    const char *origin, struct error *err);

/*
 * Writing in two steps, so that the metadata can be committed between them: snapshot_stage() does all of the
 * above from a metadata store, writes and syncs DATASET/.snapshot.tmp; snapshot_publish() renames it and
 * syncs the directory.
 */
struct snapshot_progress {
	progress_callback *callback; /* or NULL */
	void *context;
};

/* progress: or NULL */
int snapshot_stage(struct meta *meta, uint64_t version, uint64_t created_ns, int dataset_fd,
		   const char *dataset_path, const struct snapshot_progress *progress, struct error *err);
int snapshot_publish(int dataset_fd, const char *dataset_path, struct error *err);
void snapshot_unstage(int dataset_fd);
