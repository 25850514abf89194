/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An analysis, rendered. Each renderer writes to a stream the caller owns and returns 0, -ENOMEM, or -EIO and
 * the like when the stream cannot be written.
 */

#include <stdbool.h>
#include <stdio.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"

/* Where an analysis comes from. Everything is borrowed, and NULL or 0 if not known. */
struct report_source {
	const char *recording; /* file name */
	const char *host, *kernel, *machine, *version;
	struct clock_snapshot clocks; /* when the recording began */
	bool cut_off;                 /* the recording was not closed properly, or is damaged */
};

struct report_text_options {
	bool colour;        /* ANSI colours; without them nothing is lost */
	bool ascii;         /* no characters beyond ASCII */
	unsigned int width; /* columns to fill; 0: 80 */
};

/* For people: the verdict first, then a bar and table of the shares, evidence, what to do. */
int report_text(FILE *stream, const struct analysis *analysis, const struct report_text_options *options);

/* Fills in what suits a stream: colour and width of a terminal (NO_COLOR is honoured), ASCII where the
 * locale is not UTF-8 (the caller has called setlocale()). */
struct report_text_options report_text_options_for(FILE *stream);

/*
 * For programs: one JSON object, "schema": "diesel.report/1". Seconds and ratios are numbers; what is not
 * known is null. docs/explanation/measuring.md lists the keys. Within a schema keys are added, never renamed.
 * with_steps: also "step_table", with an object for each step. source may be NULL.
 */
int report_json(FILE *stream, const struct analysis *analysis, const struct report_source *source,
		bool with_steps);

/* The JSON schema (draft 2020-12) of that object: docs/report.schema.json. */
int report_json_schema(FILE *stream);

/*
 * For people, with pictures: one HTML file that needs no other file and no network. Its key facts are
 * readable without JavaScript. If the analysis has lanes it has a timeline of threads. source may be NULL.
 */
int report_html(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* For ui.perfetto.dev and the like: a gzipped trace of steps, threads (if the analysis has lanes), waits and
 * checkpoints, with arrows for who woke whom. source may be NULL. */
int report_perfetto(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* For monitoring: the whole recording as OpenMetrics text. source may be NULL. */
int report_openmetrics(FILE *stream, const struct analysis *analysis, const struct report_source *source);

/* Steps in the window; an estimate for a sampled recording; 0: not known. */
size_t report_n_steps(const struct analysis *analysis);

/* Return true if the number of steps, or the wait for data per step, is known. What is not is never shown as
 * 0. */
bool report_steps_known(const struct analysis *analysis);
bool report_wait_known(const struct analysis *analysis);

/* What tables for people show: the steady steps, which the verdict is about, or, if there are none, the
 * window. */
struct report_shares {
	uint64_t ns[SHARE_COUNT];
	uint64_t wall_ns;
	size_t n_steps;
};
struct report_shares report_shares(const struct analysis *analysis);
double report_shares_ratio(const struct report_shares *shares, enum analysis_share share);

/* Steps in the window over its length; NAN if it is empty or the steps are not known. */
double report_steps_per_s(const struct analysis *analysis);
