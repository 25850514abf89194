/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A dataset opened for reading: through its snapshot or, with --meta or without a snapshot, through its
 * metadata. */

#include "dataset/dataset.h"
#include "dataset/look_up.h"

struct ctl_dataset {
	struct dataset *dataset; /* NULL: opened by the metadata */
	struct look_up *look_up;
};

/* Opens a dataset. version 0: the newest. -EINVAL: an old version with from_meta, since the metadata has only
 * the newest. */
int ctl_dataset_open(const char *path, uint64_t version, bool from_meta, struct ctl_dataset *ret,
		     struct error *err);
void ctl_dataset_closep(const struct ctl_dataset *d);

/* Converts the metadata of a sample into the snapshot's form, without number, chunk and class. */
struct snapshot_sample ctl_sample_of(const struct meta_path *path);
struct ctl_sample {
	struct snapshot_sample sample;
	struct chunk_id chunk;
	struct meta_path found; /* set if opened by the metadata */
};

/* Finds a sample by its path. -ENOENT: no such sample. */
int ctl_dataset_find(const struct ctl_dataset *d, const char *path, struct ctl_sample *ret,
		     struct error *err);
/* Finds a sample and reads it into new memory. The caller frees *ret. */
int ctl_dataset_read(const struct ctl_dataset *d, const char *path, unsigned char **ret, uint32_t *ret_bytes,
		     struct error *err);
