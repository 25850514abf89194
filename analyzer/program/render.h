/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes a report from a recording, as `report` and the plain run do. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct error;
struct render_format;

#define RENDER_FORMAT_NAMES "text, json, html, perfetto or openmetrics"

struct render_options {
	const char *recording;
	const char *output; /* NULL: the stream */
	const char *format; /* one of RENDER_FORMAT_NAMES; NULL: by the extension of output, else text */
	FILE *stream;
	bool steps;                     /* a table of all steps too, in JSON */
	uint32_t trainer_tid;           /* 0: as recorded, or found automatically */
	double checkpoint_overhead_max; /* 0: CHECKPOINT_OVERHEAD_MAX */
};

/* *ret_sufficient: the recording is sufficient to judge the job; otherwise the report lists the missing
 * data. An output file is written atomically. */
int render_recording(const struct render_options *options, bool *ret_sufficient, struct error *err);

/* Returns NULL if there is no such format. */
const struct render_format *render_format_by_name(const char *name);
