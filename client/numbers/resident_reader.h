/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples by number out of chunks in the daemon's memory that this process maps (client/residents.h): a copy,
 * and no request except for a chunk's first sample. Reserves nothing in the daemon. Has a connection of its
 * own, opened when a thread reads. Thread-safe; not for use across a fork.
 */

#include "by_number.h"
#include "dataset/snapshot.h"

struct resident_reader;

int resident_reader_new(struct resident_reader **ret);
void resident_reader_free(struct resident_reader *r);

/* Copies those of n samples whose chunks are in memory. found[n]: their entries in the snapshot. done[n]
 * receives whether the sample was copied. Returns the number of samples that were. */
uint32_t resident_reader_copy(struct resident_reader *r, struct diesel_dataset *d,
			      const struct snapshot_sample *found, void *const *buffers, uint32_t n,
			      bool *done);
