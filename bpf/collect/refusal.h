/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Why the kernel refused BPF programs, by what libbpf says while it loads them. Each thread has its own. */

#include <stdbool.h>

#include "bpf/collector.h"

struct refusal {
	char program[COLLECTOR_PROGRAM_SIZE]; /* the one that libbpf spoke of last; "": of none */
	char reason[COLLECTOR_REASON_SIZE];   /* the verifier's last line, or what libbpf said */
	bool verified;                        /* the reason is the verifier's */
};

/* Forgets what was said. From now on libbpf's words are heard, and are written to the log at LOG_DEBUG. */
void refusal_listen(void);

/* Returns what was heard of the last load. */
const struct refusal *refusal_get(void);

/* Returns true if a load failed with r because the caller may not load programs. The verifier fails with the
 * same numbers where it refuses a program to everybody. */
bool refusal_of_privilege(int r);
