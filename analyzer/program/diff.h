/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From two session files to what changed between them. */

#include <stdbool.h>
#include <stdio.h>

struct error;

struct diff_options {
	const char *session_a, *session_b;
	const char *output; /* NULL: the stream */
	FILE *stream;
	bool json;
};

/* -ENODATA: one of them says too little; err names it. Else as session_analyze(), or of the output. */
int diff_sessions(const struct diff_options *options, struct error *err);
