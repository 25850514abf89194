/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Two analyses side by side, rendered. Results as in reports/report.h. */

#include "reports/report.h"

struct comparison;

struct report_difference {
	const struct analysis *a, *b;
	const struct report_source *source_a, *source_b;
	const struct comparison *comparison;
};

/* For people: the change of speed first, then what moved, then what else differs between the two. */
int report_difference_text(FILE *stream, const struct report_difference *difference,
			   const struct report_text_options *options);

/* One JSON object, "schema": "diesel.diff/1". */
int report_difference_json(FILE *stream, const struct report_difference *difference);
