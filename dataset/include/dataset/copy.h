/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Copies, moves and deletes whole datasets, in folders and in buckets.
 *
 * A copy has the version, the log, the digests and the retained snapshots of the original, and the same
 * sample numbers. Chunks are copied first, several at a time, and each is verified: its head, all samples,
 * and its digest if it has one. Samples of an indexed dataset stay in their files: only references to them
 * are copied, after a check that the files are as they were indexed. Metadata are made of the heads of the
 * copied chunks. The snapshot is published last, so that a reader sees no dataset or the whole one. A second
 * run of an interrupted copy continues where the first one stopped.
 *
 * Nothing follows a symbolic link out of a dataset's folder. A dataset of which a writer is at work is
 * refused (-EBUSY), and so is one of a newer format (-EPROTONOSUPPORT).
 */

#include "lib/error.h"
#include "lib/progress.h"

#include <stdbool.h>
#include <stdint.h>

struct copy_options {
	const char *from, *to;
	const char *meta_url; /* a Redis server for the copy's metadata; NULL: the server of the original with
				 a new prefix, or meta.db */
	unsigned n_threads;   /* chunks that are copied at the same time, >= 1 */
	progress_callback *progress;      /* or NULL; one call at a time */
	bool (*cancelled)(void *context); /* or NULL; true ends the copy with -ECANCELED */
	void *context;
};

struct copy_result {
	uint64_t version, n_samples, n_chunks, n_snapshots;
	uint64_t bytes;     /* of the chunks that this run has copied */
	uint64_t n_resumed; /* chunks that an earlier run has copied */
	bool is_renamed;    /* dataset_move(): nothing was copied */
	uint64_t n_outside; /* samples that stay in files which the dataset refers to */
	uint64_t n_sources; /* files with such samples, each as it was indexed */
	char source[256];   /* one of them, cut off if it is longer */
};

/* Copies a dataset. -EEXIST: there is another one; -ENOTEMPTY: the folder is not empty; -EBADMSG: a chunk of
 * the original is damaged, or a file that it refers to has changed; -ENOENT: also such a file. Other errors
 * as of the backends. */
int dataset_copy(const struct copy_options *options, struct copy_result *ret, struct error *err);

struct removal {
	uint64_t n_chunks, n_snapshots, bytes;
	uint64_t n_redis_keys;
	char other[256]; /* name of a file that does not belong to the dataset, and stays with its folder; "":
			    there is none */
};

/* Renames the dataset's folder, or, from one file system to another and to or from a bucket, copies the
 * dataset and then removes the original. *ret_removed: what was removed. */
int dataset_move(const struct copy_options *options, struct copy_result *ret, struct removal *ret_removed,
		 struct error *err);

/* Removes a dataset: first its snapshot, so that nobody opens it any more. A second call continues where an
 * interrupted one stopped. Programs that have files or memory of it keep them. -EINVAL: this is no dataset.
 */
int dataset_remove(const char *path, progress_callback *progress, void *context, struct removal *ret,
		   struct error *err);
