/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reports of an analysis. Each function writes to a stream that the caller owns and returns 0, -ENOMEM, or
 * -EIO and the like if it cannot write the stream.
 */

#include <stdbool.h>
#include <stdio.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"

/* Origin of an analysis. All pointers are borrowed; NULL or 0 if not known. */
struct report_source {
	const char *recording; /* file name */
	const char *host, *kernel, *machine, *version;
	struct clock_snapshot clocks; /* clocks at the start of the recording */
	bool cut_off;                 /* the recording was not closed properly, or the file is damaged */
};

struct report_text_options {
	bool colour;        /* use ANSI colours; no information is lost without them */
	bool ascii;         /* no characters beyond ASCII */
	unsigned int width; /* width of the output, in columns; 0: 80 */
};

/* Writes a report for people: the verdict first, then a bar and table of the shares, evidence, and advice. */
int report_text(FILE *stream, const struct analysis *analysis, const struct report_text_options *options);

/* Returns options for a stream: colour and width of a terminal (NO_COLOR is honoured), ASCII if the locale is
 * not UTF-8 (the caller has called setlocale()). */
struct report_text_options report_text_options_for(FILE *stream);

/*
 * Writes a report for programs: one JSON object, "schema": "diesel.report/1". Seconds and ratios are numbers;
 * unknown values are null. docs/reference/report.md lists the keys. Within a schema keys are added,
 * never renamed. with_steps: also "step_table", with an object for each step. source may be NULL.
 */
int report_json(FILE *stream, const struct analysis *analysis, const struct report_source *source,
		bool with_steps);

/* Writes the JSON schema (draft 2020-12) of that object: docs/report.schema.json. */
int report_json_schema(FILE *stream);

/*
 * Writes a report for people with charts: one HTML file that needs no other file and no network. Its key
 * facts are readable without JavaScript. If the analysis has lanes, the file has a timeline of threads.
 * source may be NULL.
 */
int report_html(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* Writes a gzipped trace for ui.perfetto.dev and the like: steps, threads (if the analysis has lanes), waits
 * and checkpoints, with arrows from waker to woken thread. source may be NULL. */
int report_perfetto(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* Writes the whole recording as OpenMetrics text, for monitoring. source may be NULL. */
int report_openmetrics(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* Returns the number of steps in the window, which is an estimate for a sampled recording; 0: not known. */
size_t report_n_steps(const struct analysis *analysis);

/* Return true if the number of steps, or the wait for data per step, is known. Reports never show unknown
 * values as 0. */
bool report_steps_known(const struct analysis *analysis);
bool report_wait_known(const struct analysis *analysis);

/* Shares for tables in reports for people. They are those of the steady steps, on which the verdict is based,
 * or else of the window. */
struct report_shares {
	uint64_t ns[SHARE_COUNT];
	uint64_t wall_ns;
	size_t n_steps;
};
struct report_shares report_shares(const struct analysis *analysis);
double report_shares_ratio(const struct report_shares *shares, enum analysis_share share);

/* Returns the steps per second in the window; NAN if it is empty or the steps are not known. */
double report_steps_per_s(const struct analysis *analysis);
