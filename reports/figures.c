/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <math.h>

#include "analyzer/analysis.h"

double report_steps_per_s(const struct analysis *analysis)
{
	uint64_t wall_ns = analysis->observed_ns;

	return wall_ns ? (double)analysis->n_steps * (double)NS_PER_S / (double)wall_ns : NAN;
}
