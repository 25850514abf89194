/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Snapshots of datasets in buckets, kept for a user: $XDG_CACHE_HOME/diesel/s3/NAME/VERSION-SHA256, each a
 * folder as the daemon wants one, with `snapshot` and an empty `chunks`. What it holds is in its name, so
 * that it is right or not there. Versions that nobody has open are removed when another one comes.
 */

#include "lib/error.h"
#include "manifest.h"

#include <stdbool.h>

/*
 * Opens the folder of this version, which stays as long as *ret_fd or a copy of it is open. *ret_is_whole:
 * the snapshot is in it; else whoever called is the only one to fetch it now, as SNAPSHOT_CACHE_PART, and
 * calls snapshot_cache_keep(). free() the folder's path.
 */
int snapshot_cache_open(const char *url, const struct manifest *m, char **ret_folder, int *ret_fd,
			bool *ret_is_whole, struct error *err);
/* Makes what was fetched to SNAPSHOT_CACHE_PART in the folder its snapshot. */
#define SNAPSHOT_CACHE_PART ".snapshot.part"
int snapshot_cache_keep(const char *folder, int fd, struct error *err);
