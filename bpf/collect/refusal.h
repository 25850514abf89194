/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reasons why the kernel refused BPF programs, from libbpf's messages during the load. Each thread has its
 * own. */

#include <stdbool.h>

#include "bpf/collector.h"

struct refusal {
	char program[COLLECTOR_PROGRAM_SIZE]; /* the program that libbpf mentioned last; "": none */
	char reason[COLLECTOR_REASON_SIZE];   /* the verifier's last line, or libbpf's message */
	bool verified;                        /* the reason comes from the verifier */
};

/* Clears the state and starts to collect libbpf's messages, which also go to the log at LOG_DEBUG. */
void refusal_listen(void);

/* Returns the refusal of the last load. */
const struct refusal *refusal_get(void);

/* Returns true if a load failed with r because the caller may not load programs. The verifier returns the
 * same error numbers for a program that it refuses for everybody. */
bool refusal_of_privilege(int r);
