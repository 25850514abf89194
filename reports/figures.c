/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <math.h>

#include "analyzer/analysis.h"

size_t report_n_steps(const struct analysis *analysis)
{
	return analysis->approximate ? analysis->n_steps_estimated : analysis->n_steps;
}

double report_steps_per_s(const struct analysis *analysis)
{
	uint64_t wall_ns = analysis->observed_ns;

	if (analysis->approximate && !analysis->n_steps_estimated)
		return NAN;
	return wall_ns ? (double)report_n_steps(analysis) * (double)NS_PER_S / (double)wall_ns : NAN;
}
