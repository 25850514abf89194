/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between libdiesel and `dieselctl fetch`, the process that it starts for a dataset in a bucket.
 * Each message is one fixed struct on a SOCK_SEQPACKET pair, whose other end is the process's standard input.
 * Both programs have the same version and user.
 *
 *   libdiesel                                      dieselctl fetch
 *                                              <-  fetch_reply; on success, with two descriptors: the folder
 *                                                  of the dataset's snapshot, and the snapshot
 *   fetch_request, descriptor: a stream socket ->
 *                                              <-  on that socket: fetch_reply, then the bytes
 *
 * The process exits once every copy of libdiesel's end of the channel is closed. Requests may come from any
 * forked process.
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
