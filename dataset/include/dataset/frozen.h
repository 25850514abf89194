/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset in a folder that is frozen: jobs and tools read it by its snapshots, and it has no metadata, or
 * none that counts. DATASET/frozen says so. It is written before the metadata are removed, under the writer's
 * lock, and removed when a rebuild has made and published them again; whatever lies between is frozen.
 */

#include "lib/error.h"

#include <stdbool.h>

#define FROZEN_FILE "frozen"

/* Returns true if the dataset is frozen. dir_fd: the dataset's folder, or AT_FDCWD with its path. */
bool frozen_is(int dir_fd, const char *path);
/* Sets the error text for a frozen dataset. Returns -EROFS. */
int frozen_error(const char *dataset_path, struct error *err);

/* Marks the dataset as frozen. The caller holds the writer's lock, and the snapshot matches the metadata. */
int frozen_mark(int dir_fd, const char *dataset_path, struct error *err);
/* Removes the metadata of a frozen dataset. */
int frozen_drop_metadata(int dir_fd, const char *dataset_path, struct error *err);
/* Removes the mark. */
int frozen_unmark(int dir_fd, const char *dataset_path, struct error *err);
