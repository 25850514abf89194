/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the files of this folder share. */

#include <time.h>

#include "dataset/backend.h"
#include "dataset/change.h"
#include "dataset/chunk/buffer.h"
#include "dataset/copy.h"
#include "dataset/meta.h"
#include "dataset/store.h"
#include "dataset/write/writer_private.h"

/* The dataset that is copied, as it was when it was opened. */
struct copy_source {
	const char *path;
	struct place *place;
	struct store *store;
	bool is_frozen; /* there are no metadata */
	bool has_redis;
	bool gives_redis; /* the copy gets the metadata that the original has on a server */
	bool has_digests;
	uint64_t version, n_samples;
	uint64_t n_outside;    /* samples in other files */
	struct buffer chunks;  /* struct meta_chunk, in id order */
	struct buffer outside; /* struct chunk_id of the chunks of these samples, in id order */
	struct buffer changes; /* struct change, in order of versions */
};

static inline const struct meta_chunk *copy_chunks_of(const struct copy_source *s, size_t *ret_n)
{
	*ret_n = s->chunks.bytes / sizeof(struct meta_chunk);
	return (const struct meta_chunk *)s->chunks.data;
}

/* Opens a dataset to be copied. is_ours: the caller holds its writer lock. -ENOENT: no dataset; -ENODATA: it
 * has no version; -ESTALE: its snapshot is missing or of another version; -EPROTONOSUPPORT: a newer format.
 */
int copy_source_open(const char *path, bool is_ours, struct copy_source *ret, struct error *err);
void copy_source_close(struct copy_source *s);
/* Opens the snapshot of a version that is kept; *ret_fd can be read. -ENOENT: it is not kept. */
int copy_source_snapshot(const struct copy_source *s, uint64_t version, int *ret_fd, struct error *err);

/* As dataset_copy(), of a source that is open. Adds to the result, which is {0} at first. */
int copy_of_source(const struct copy_options *o, const struct copy_source *s, struct copy_result *result,
		   struct error *err);

/* The folder of a dataset, to be moved or removed. */
struct copy_folder {
	char *path;        /* without slashes at its end */
	int parent_fd, fd; /* fd: no link led to it */
	const char *name;  /* in the parent folder */
	struct writer_lock *lock;
};

/* Opens the folder and takes the writer's lock. {0} is closed. -ELOOP: a link; -EINVAL: not a dataset;
 * -EPROTONOSUPPORT: one of a newer format; -EBUSY: a writer is at work. */
int copy_folder_open(const char *path, struct copy_folder *ret, struct error *err);
/* -EBUSY: several processes write to the dataset. */
int copy_folder_check_writers(const struct copy_folder *f, struct error *err);
void copy_folder_close(struct copy_folder *f);
/* Opens the parent folder of a path, from which slashes at the end are removed. */
int copy_folder_parent(const char *path, struct copy_folder *ret, struct error *err);
#define COPY_REMOVED_FILE ".delete" /* marks a folder whose removal was interrupted */

/* Removes the dataset, and its folder if nothing else is in it. Releases the lock. Adds to the removal, which
 * is {0} at first. */
int copy_folder_remove(struct copy_folder *f, progress_callback *progress, void *context,
		       struct removal *removal, struct error *err);
