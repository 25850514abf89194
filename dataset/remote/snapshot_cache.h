/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Snapshots of datasets in buckets, kept for a user: $XDG_CACHE_HOME/diesel/s3/NAME/VERSION-SHA256, each a
 * folder as the daemon needs it, with `snapshot` and an empty `chunks`. The name has the snapshot's digest,
 * so a folder has the right snapshot or none. Versions that nobody has open are removed when another one is
 * added.
 */

#include "lib/error.h"
#include "manifest.h"

#include <stdbool.h>

/*
 * Opens the folder of this version, which stays as long as *ret_fd or a copy of it is open. *ret_is_whole:
 * the folder has the snapshot. Otherwise only the caller may fetch it now, as SNAPSHOT_CACHE_PART, and then
 * calls snapshot_cache_keep(). free() the folder's path.
 */
int snapshot_cache_open(const char *url, const struct manifest *m, char **ret_folder, int *ret_fd,
			bool *ret_is_whole, struct error *err);
/* Makes the fetched file SNAPSHOT_CACHE_PART the folder's snapshot. */
#define SNAPSHOT_CACHE_PART ".snapshot.part"
int snapshot_cache_keep(const char *folder, int fd, struct error *err);
