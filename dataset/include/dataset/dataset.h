/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset opened for reading without a daemon: its snapshot and its store.
 *
 * An open dataset stays at the version that was opened. To see later changes, open it again. Thread-safe
 * once open: reads share nothing.
 */

#include "dataset/snapshot.h"
#include "dataset/store.h"

struct dataset;

/* Opens a version, 0: the newest, and verifies its snapshot. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT,
 * and as version_open(); err says what to do. */
int dataset_open_version(const char *path, uint64_t version, struct dataset **ret, struct error *err);
void dataset_close(struct dataset *d);

/* Borrowed: valid until dataset_close(). sample_read() takes both. */
const struct snapshot *dataset_snapshot(const struct dataset *d);
struct store *dataset_store(const struct dataset *d);
