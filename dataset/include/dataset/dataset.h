/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset opened for reading without a daemon: its snapshot and its store.
 *
 * What was opened stays as it was when the dataset changes: open it again to see the change.
 * Thread-safe once open: reads share nothing.
 */

#include "dataset/snapshot.h"
#include "dataset/store.h"

struct dataset;

/* Also verifies the snapshot. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT; err says what to do. */
int dataset_open(const char *path, struct dataset **ret, struct error *err);
/* An old version of it; 0: the newest. Errors also as version_open(). */
int dataset_open_version(const char *path, uint64_t version, struct dataset **ret, struct error *err);
void dataset_close(struct dataset *d);

/* Borrowed: valid until dataset_close(). sample_read() takes both. */
const struct snapshot *dataset_snapshot(const struct dataset *d);
struct store *dataset_store(const struct dataset *d);
