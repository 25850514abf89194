/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A dataset whose samples are to be shown: by its snapshot or, with --meta or where it has none, by its
 * metadata. */

#include "dataset/dataset.h"
#include "dataset/look_up.h"

struct ctl_dataset {
	struct dataset *dataset; /* NULL: by the metadata */
	struct look_up *look_up;
};

/* version 0: the newest. -EINVAL: an old one is not in the metadata. */
int ctl_dataset_open(const char *path, uint64_t version, bool from_meta, struct ctl_dataset *ret,
		     struct error *err);
void ctl_dataset_closep(const struct ctl_dataset *d);

/* The metadata's word for a sample, as a snapshot would have it, but for its number, chunk and class. */
struct snapshot_sample ctl_sample_of(const struct meta_path *path);
struct ctl_sample {
	struct snapshot_sample sample;
	struct chunk_id chunk;
	struct meta_path found; /* where the metadata was asked */
};

/* -ENOENT: there is none. */
int ctl_dataset_find(const struct ctl_dataset *d, const char *path, struct ctl_sample *ret,
		     struct error *err);
/* Finds and reads one, in new memory. */
int ctl_dataset_read(const struct ctl_dataset *d, const char *path, unsigned char **ret, uint32_t *ret_bytes,
		     struct error *err);
