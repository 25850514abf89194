/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reports that compare two analyses. Results as in reports/report.h. */

#include "reports/report.h"

struct comparison;

struct report_difference {
	const struct analysis *a, *b;
	const struct report_source *source_a, *source_b;
	const struct comparison *comparison;
};

/* Writes a report for people: the change of speed first, then the shares that changed, then other
 * differences. */
int report_difference_text(FILE *stream, const struct report_difference *difference,
			   const struct report_text_options *options);

/* Writes one JSON object, "schema": "diesel.diff/1". */
int report_difference_json(FILE *stream, const struct report_difference *difference);
