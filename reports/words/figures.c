/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <math.h>

#include "analyzer/analysis.h"

size_t report_n_steps(const struct analysis *analysis)
{
	return analysis->sampled.is ? analysis->sampled.n_steps_estimated : analysis->n_steps;
}

bool report_steps_known(const struct analysis *analysis)
{
	return !analysis->sampled.is || analysis->sampled.n_steps_estimated;
}

bool report_wait_known(const struct analysis *analysis)
{
	return analysis->verdict != ANALYSIS_INSUFFICIENT && analysis->job.loader != LOADER_NONE &&
	       report_steps_known(analysis);
}

double report_steps_per_s(const struct analysis *analysis)
{
	uint64_t wall_ns = analysis->window.observed_ns;

	if (!report_steps_known(analysis))
		return NAN;
	return wall_ns ? (double)report_n_steps(analysis) * (double)NS_PER_S / (double)wall_ns : NAN;
}

struct report_shares report_shares(const struct analysis *analysis)
{
	bool steady = analysis->steady.ns > 0;
	struct report_shares shares = {
	    .wall_ns = steady ? analysis->steady.ns : analysis->window.observed_ns,
	    .n_steps = report_n_steps(analysis) -
		       (steady ? analysis->steady.n_warmup_steps + analysis->steady.n_excluded_steps : 0),
	};

	for (size_t i = 0; i < SHARE_COUNT; i++)
		shares.ns[i] = steady ? analysis->steady.share_ns[i] : analysis->share_ns[i];
	return shares;
}

double report_shares_ratio(const struct report_shares *shares, enum analysis_share share)
{
	return shares->wall_ns ? (double)shares->ns[share] / (double)shares->wall_ns : 0;
}
