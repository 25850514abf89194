/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Retained snapshots of earlier versions, with which jobs may continue: DATASET/snapshots/N. The newest
 * version's is one of them, and is the same file as DATASET/snapshot.
 *
 * A descriptor of the dataset's folder may be one that was opened with O_PATH.
 */

#include "lib/error.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_RETAINED_FOLDER "snapshots"
/* Formats for error texts: the dataset, the requested version, the newest one. */
#define SNAPSHOT_NO_VERSION    "%s has no version %" PRIu64 ": its newest version is %" PRIu64
#define SNAPSHOT_NOT_RETAINED  "%s has no snapshot of version %" PRIu64 " any more"
#define SNAPSHOT_RETAINED_NAME (sizeof(SNAPSHOT_RETAINED_FOLDER "/18446744073709551615"))

/* Writes the snapshot's path, relative to the dataset's folder. Returns name. */
const char *snapshot_retained_name(uint64_t version, char name[SNAPSHOT_RETAINED_NAME]);

/* Writes the snapshot's name in the folder that snapshot_retained_folder() opens, which is no link; -errno.
 */
const char *snapshot_retained_file(uint64_t version, char name[SNAPSHOT_RETAINED_NAME]);
int snapshot_retained_folder(int dataset_fd);

/* Returns the version in the file's first bytes, which nobody has verified. 0: the file is no snapshot. */
uint64_t snapshot_retained_version(int fd);

/* Lists the versions whose snapshots are kept, ascending: free() the array. -errno: the folder cannot be
 * read. Without a folder the list is empty. */
int snapshot_retained_list(int dataset_fd, uint64_t **ret, size_t *ret_n);

/* Opens the snapshot of this version, which may also be the newest. -ENOENT: there is no such version, or its
 * snapshot is not kept; -EACCES; -EBADMSG. err says which are kept. */
int snapshot_retained_open(int dataset_fd, const char *dataset_path, uint64_t version, int *ret_fd,
			   struct error *err);
