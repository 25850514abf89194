/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From two recordings to what changed between them. */

#include <stdbool.h>
#include <stdio.h>

struct error;

struct diff_options {
	const char *recording_a, *recording_b;
	const char *output; /* NULL: the stream */
	FILE *stream;
	bool json;
};

/* -ENODATA: one of them says too little; err names it. Else as recording_analyze(), or of the output. */
int diff_recordings(const struct diff_options *options, struct error *err);
