/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/analysis.h"

bool analysis_share_known(const struct analysis *analysis, enum analysis_share share)
{
	return share != SHARE_COMPILING || analysis->compiling.known;
}

double analysis_share_ratio(const struct analysis *analysis, enum analysis_share share)
{
	uint64_t wall_ns = analysis->window.observed_ns;

	return wall_ns ? (double)analysis->share_ns[share] / (double)wall_ns : 0;
}

double analysis_steady_ratio(const struct analysis *analysis, enum analysis_share share)
{
	/* Sampled recordings have no steps: all of their time is steady. */
	if (!analysis->steady.ns)
		return analysis_share_ratio(analysis, share);
	return (double)analysis->steady.share_ns[share] / (double)analysis->steady.ns;
}
