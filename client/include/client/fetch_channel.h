/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What libdiesel and the process that it starts for a dataset in a bucket, `dieselctl fetch`, say to each
 * other: fixed structs, one a message on a SOCK_SEQPACKET pair, of which the process has its end as standard
 * input. Both are of one version and one user.
 *
 *   libdiesel                                      dieselctl fetch
 *                                              <-  fetch_reply; if it can be read: descriptors of a folder
 *                                                  with the dataset's snapshot, and of that snapshot
 *   fetch_request, descriptor: a stream socket ->
 *                                              <-  on that socket: fetch_reply, and behind it the bytes
 *
 * The process ends with the last end of the channel on libdiesel's side. Requests come from any process that
 * was forked meanwhile.
 */

#include <stdint.h>

#include "client/protocol.h"

struct fetch_reply {
	int32_t result; /* 0 or a negative errno */
	uint32_t reserved;
	char text[WIRE_TEXT_BYTES]; /* one line, terminated; "" if result is 0 */
};

/* A range of a chunk, for diesel_dataset_read(). */
struct fetch_request {
	uint64_t offset, bytes;
	char object[WIRE_OBJECT_BYTES];
};
