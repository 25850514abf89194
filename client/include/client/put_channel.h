/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What libdiesel and the process that it starts to write a dataset, `dieselctl put`, say to each other: over
 * a SOCK_STREAM pair, of which the process has its end as standard input. Both are of one version and one
 * user.
 *
 *   libdiesel                                      dieselctl put
 *                                              <-  put_reply: the dataset is open
 *   put_record, path, data                     ->
 *   ...
 *   put_record of path_length 0                ->
 *                                              <-  put_reply: committed
 *
 * A failure is a put_reply at any time, behind which the process closes its end. What was not committed is
 * removed when libdiesel closes its own.
 */

#include <stdint.h>

#include "client/protocol.h"

struct put_record {
	uint64_t bytes, mtime_ns;
	uint32_t mode; /* st_mode */
	uint32_t path_length;
};

struct put_reply {
	int32_t result; /* 0 or a negative errno */
	uint32_t reserved;
	uint64_t version;           /* of the dataset */
	char text[WIRE_TEXT_BYTES]; /* one line, terminated; "" if result is 0 */
};
