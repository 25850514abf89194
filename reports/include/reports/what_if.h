/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reports the answer to a what-if question or, without a question, all curves. The analysis must have
 * predictions. Results as in reports/report.h. */

#include "analyzer/predictions.h"
#include "reports/report.h"

struct report_what_if {
	const char *recording;
	const struct analysis *analysis;
	struct what_if_question question; /* the question that analysis->predictions->answer answers */
};

/* Writes a report for people: the answer or, without a question, rates and curves. */
int report_what_if_text(FILE *stream, const struct report_what_if *what_if);

/* Writes one JSON object, "schema": "diesel.what-if/1". */
int report_what_if_json(FILE *stream, const struct report_what_if *what_if);
