/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages between unpack.c and unpack_serve.c: UNPACK_BEGIN carries descriptors of the memory to read and
 * of the output buffer, and is answered by UNPACK_STARTED with a pidfd, then UNPACK_READY. Then runs
 * follow, each with an answer. */

#include <stdint.h>

#include "unpack.h"

enum unpack_type { UNPACK_BEGIN = 1, UNPACK_STARTED, UNPACK_READY, UNPACK_RUN, UNPACK_DONE };

struct unpack_message {
	uint32_t type;
	int32_t pid;    /* UNPACK_STARTED: the process's own id */
	int32_t result; /* UNPACK_DONE: 0 or a negative errno */
	union {
		uint64_t memory_bytes; /* UNPACK_BEGIN */
		struct unpack_run run; /* UNPACK_RUN */
	};
};
