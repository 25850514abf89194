/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads one sample. */

#include "dataset/snapshot.h"
#include "dataset/store.h"

/* Reads one sample (from snapshot_sample_get()) into buffer, which has space for sample->bytes, and checks
 * its checksum. -EBADMSG: it is damaged; err names chunk, byte and path, and the buffer's content is
 * undefined. Thread-safe. */
int sample_read(const struct snapshot *snapshot, struct store *store, const struct snapshot_sample *sample,
		void *buffer, size_t size, struct error *err);
