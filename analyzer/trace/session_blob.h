/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The session file as the cursor sees it: blobs of sorted events. Only session.c knows the database. */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/session.h"

struct session_blob {
	int64_t id;
	uint64_t min_end_ns;
};

/* All blobs, in the order of writing. Caller frees. */
int session_blobs(struct session *session, struct session_blob **ret_blobs, size_t *ret_n);

/* -EBADMSG: this blob is damaged. Caller frees. */
int session_blob_read(struct session *session, int64_t id, struct event **ret_events, size_t *ret_n);

/* Something could not be read: session_complete() is false from now on. */
void session_set_damaged(struct session *session);
