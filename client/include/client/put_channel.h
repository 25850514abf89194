/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between libdiesel and `dieselctl put`, the process that it starts to write a dataset, over a
 * SOCK_STREAM pair whose other end is the process's standard input. Both programs have the same version and
 * user.
 *
 *   libdiesel                                      dieselctl put
 *                                              <-  put_reply: the dataset is open
 *   put_record, path, data                     ->
 *   ...
 *   put_record of path_length 0                ->
 *                                              <-  put_reply: committed
 *
 * On failure, the process sends a put_reply at any time and closes its end. When libdiesel closes its own,
 * uncommitted samples are removed.
 */

#include <stdint.h>

#include "client/protocol.h"

struct put_record {
	uint64_t bytes, mtime_ns;
	uint32_t mode; /* st_mode */
	uint32_t path_length;
	uint32_t layout; /* enum diesel_layout */
	uint32_t reserved;
};

struct put_reply {
	int32_t result;             /* 0 or a negative errno */
	uint32_t n_layout;          /* layout of the dataset's samples + 1; 0: it has none, or they are
				       committed */
	uint64_t version;           /* version of the dataset */
	char text[WIRE_TEXT_BYTES]; /* one line, terminated; "" if result is 0 */
};
