/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds a snapshot: add all chunks in id order, then all paths in any order, then write the file. Memory is
 * bounded for any number of paths, which are sorted in files next to the dataset (spill_sort.h). Chunks stay
 * in memory, about 100 bytes each. Not thread-safe.
 */

#include "dataset/meta.h"
#include "dataset/snapshot.h"
#include "lib/progress.h"

struct snapshot_builder;

/* A snapshot's file, and its properties. */
struct snapshot_target {
	int fd;             /* empty, to be read and written */
	const char *origin; /* names the dataset */
	uint64_t version, created_ns;
	struct columns columns; /* of the samples' layout; borrowed */
};

#define SNAPSHOT_BUILD_BYTES ((size_t)256 << 20) /* maximum memory for sorting */

/* dir_fd: a folder with space for sorting; borrowed. */
int snapshot_builder_new(int dir_fd, size_t budget, struct snapshot_builder **ret);
void snapshot_builder_free(struct snapshot_builder *b);

/* Reports progress to the callback, as a part of n_paths; 0: of the added paths. */
void snapshot_builder_show(struct snapshot_builder *b, uint64_t n_paths, progress_callback *progress,
			   void *context);

/* A chunk that turns out to hold no live sample is left out of the snapshot. -EINVAL: the chunk is out of id
 * order or comes after a path, or some chunks have digests and others have none. */
int snapshot_builder_add_chunk(struct snapshot_builder *b, const struct meta_chunk *chunk);

/* Adds a path. If several records have the same path, the last one in storage order counts. -EINVAL: the
 * chunk is unknown, or no valid chunk holds such a record; -EOVERFLOW: too many samples for one snapshot;
 * -errno of the file used for sorting. */
int snapshot_builder_add_path(struct snapshot_builder *b, const struct meta_path *path);

/* Adds a chunk with all of its records, in place of the two functions above. Chunks come in id order. Deleted
 * paths are left out, unless they are added again. sha256 NULL: the chunk has none. Errors as of the
 * functions above. */
int snapshot_builder_replay(struct snapshot_builder *b, const struct chunk_view *view,
			    const struct digest *sha256);

/* Writes the file; once. -EEXIST: a path is both a file and a directory (err names it); -E2BIG: too many
 * names have the same checksum, which never happens by accident; -errno. */
int snapshot_builder_finish(struct snapshot_builder *b, const struct snapshot_target *target,
			    struct error *err);

/*
 * Makes a version's snapshot from the previous one and the chunks added since. The existing entries are
 * copied, renumbered and merged with the new ones, instead of being sorted again. This takes memory for the
 * changes, and a fraction of the time. Not thread-safe.
 */
struct snapshot_changes;

#define SNAPSHOT_CHANGES_BYTES ((size_t)64 << 20) /* maximum memory for the changes */
#define SNAPSHOT_NOT_UPDATED   1

/* max_records: with more records than this, build the snapshot from scratch. */
int snapshot_changes_new(uint64_t max_records, struct snapshot_changes **ret);
void snapshot_changes_free(struct snapshot_changes *c);
/* Adds a chunk. Chunks come in id order. sha256 NULL: the chunk has none. -ENOMEM. */
int snapshot_changes_add(struct snapshot_changes *c, const struct chunk_view *view,
			 const struct digest *sha256);
/* Writes the file as snapshot_builder_finish() does; once. SNAPSHOT_NOT_UPDATED: the base does not allow it,
 * or there are too many changes; build the snapshot from scratch, in an empty file. -EEXIST, -errno. */
int snapshot_update(const struct snapshot *base, struct snapshot_changes *c,
		    const struct snapshot_target *target, struct error *err);

/*
 * Writing in two steps, so that the metadata can be committed between them: snapshot_stage() does all of the
 * above from a metadata store, writes and syncs DATASET/.snapshot.tmp; snapshot_publish() renames it and
 * syncs the directory.
 */
struct snapshot_progress {
	progress_callback *callback; /* or NULL */
	void *context;
};

/* Sources of a snapshot: the metadata, and optionally more. */
struct snapshot_source {
	struct meta *meta;
	struct columns columns; /* of the samples' layout, which metadata lack */
	/* Builder to which all chunks were replayed, or NULL. */
	struct snapshot_builder *builder;
	/* Changes since the metadata was `before`, or NULL. If they are few, and DATASET/snapshot is of that
	 * version, it is updated. */
	struct snapshot_changes *changes;
	const struct meta_info *before;
};
/* progress: or NULL */
int snapshot_stage(const struct snapshot_source *from, uint64_t version, uint64_t created_ns, int dataset_fd,
		   const char *dataset_path, const struct snapshot_progress *progress, struct error *err);
int snapshot_publish(int dataset_fd, const char *dataset_path, struct error *err);
void snapshot_unstage(int dataset_fd);
#define SNAPSHOT_STAGED_FILE ".snapshot.tmp"
