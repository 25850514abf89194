/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A command that failed before its first training steps: a report of it would be one of nothing. */

#include <stdbool.h>
#include <stdint.h>

struct failed_run {
	const char *recording;
	int status; /* as waitpid gives it */
	uint64_t duration_ns;
	uint32_t trainer_tid; /* 0: find it */
};

/* Says so in one line of the log. false: it is none, or the recording cannot be read; nothing was said. */
bool failed_run_say(const struct failed_run *run);
