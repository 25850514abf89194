/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Objects of a bucket for Python: requests and answers are messages on a SOCK_SEQPACKET socket
 * (client/python/diesel_loader/checkpoint/bucket.py). Data is in memory that comes with them by descriptor.
 */

#include <stdint.h>

#include "lib/error.h"

struct objects_reply {
	int32_t result; /* 0 or a negative errno */
	uint32_t reserved;
	uint64_t bytes; /* of the object, or of the list */
	uint64_t stamp; /* of dataset/external.h; 0 unless it was asked for */
	char text[sizeof(((struct error *)0)->text)];
};

/* Serves requests until the other end of the channel is closed, which ends the process. The first answer says
 * whether the bucket could be opened. Returns a negative errno if it could not. */
int objects_serve(int channel, const char *url);
