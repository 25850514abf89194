/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Prints what changed from one recording to another. */

#include <stdbool.h>
#include <stdio.h>

struct error;

struct diff_options {
	const char *recording_a, *recording_b;
	const char *output; /* NULL: the stream */
	FILE *stream;
	bool json;
};

/* -ENODATA: one recording does not suffice for a verdict; err names it. Other errors: those of
 * recording_analyze() and of the output. */
int diff_recordings(const struct diff_options *options, struct error *err);
