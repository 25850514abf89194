/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Builds the image of a snapshot from metadata, in memory: add all chunks in id order, then all live paths in
 * any order, then finish. Not thread-safe.
 */

#include "dataset/meta.h"
#include "dataset/snapshot.h"

struct snapshot_builder;

int snapshot_builder_new(struct snapshot_builder **ret);
void snapshot_builder_free(struct snapshot_builder *b);

/* A chunk that turns out to hold no live sample is left out of the snapshot. -EINVAL: it does not come in id
 * order, or it has a digest and the others have none, or the reverse. */
int snapshot_builder_add_chunk(struct snapshot_builder *b, const struct meta_chunk *chunk);

/* -EINVAL: its chunk is unknown; -EOVERFLOW: too many samples for one snapshot. */
int snapshot_builder_add_path(struct snapshot_builder *b, const struct meta_path *path);

/* *ret_image is the caller's to free(). -EEXIST: a path is both a file and a directory (err names it). */
int snapshot_builder_finish(struct snapshot_builder *b, uint64_t version, uint64_t created_ns,
			    void **ret_image, size_t *ret_bytes, struct error *err);

/* Does all of the above from a metadata store. */
int snapshot_build(struct meta *meta, uint64_t version, uint64_t created_ns, void **ret_image,
		   size_t *ret_bytes, struct error *err);

/*
 * Writing in two steps, so that the metadata can be committed between them: snapshot_stage() writes and
 * syncs DATASET/.snapshot.tmp; snapshot_publish() renames it and syncs the directory.
 */
int snapshot_stage(int dataset_fd, const char *dataset_path, const void *image, size_t bytes,
		   struct error *err);
int snapshot_publish(int dataset_fd, const char *dataset_path, struct error *err);
void snapshot_unstage(int dataset_fd);
