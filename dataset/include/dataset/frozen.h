/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A frozen dataset in a folder: jobs and tools read it through its snapshots, and it has no metadata, or
 * metadata that are ignored. The file DATASET/frozen marks it. The mark is written, under the writer's lock,
 * before the metadata are removed. It is removed after a rebuild has made and published metadata again. In
 * between, the dataset is frozen.
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
