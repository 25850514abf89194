/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The cursor's view of the recording: blobs of sorted events. Only recording.c knows the database. */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/recording.h"

struct recording_blob {
	int64_t id;
	uint64_t min_end_ns;
};

/* Lists all blobs, in the order of writing. Caller frees. */
int recording_blobs(struct recording *recording, struct recording_blob **ret_blobs, size_t *ret_n);

/* Reads a blob's events; the caller frees them. -EBADMSG: this blob is damaged. */
int recording_blob_read(struct recording *recording, int64_t id, struct event **ret_events, size_t *ret_n);

/* Records that a part could not be read: recording_complete() is false from now on. */
void recording_set_damaged(struct recording *recording);
