/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset opened for reading without a daemon: its snapshot and its store.
 *
 * What is opened stays as it is, also when the dataset is changed meanwhile: open it again to see more.
 * Thread-safe once open: reads share nothing.
 */

#include "dataset/snapshot.h"
#include "dataset/store.h"

struct dataset;

/* The snapshot is verified. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT; err says what to do. */
int dataset_open(const char *path, struct dataset **ret, struct error *err);
void dataset_close(struct dataset *d);

/* Borrowed: valid until dataset_close(). */
const struct snapshot *dataset_snapshot(const struct dataset *d);
struct store *dataset_store(const struct dataset *d);

/* Reads one sample (from snapshot_sample_get()) into buffer, which has room for sample->bytes, and checks
 * its checksum. -EBADMSG names chunk, byte and path; the buffer's content is then undefined. */
int dataset_read_sample(const struct dataset *d, const struct snapshot_sample *sample, void *buffer,
			size_t size, struct error *err);
