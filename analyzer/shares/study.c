/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"

#include "analyzer/analysis.h"

void analysis_cover_window(struct analysis *analysis)
{
	if (analysis->recorded.begin_ns > analysis->window.begin_ns)
		analysis->recorded.begin_ns = analysis->window.begin_ns;
	if (analysis->recorded.end_ns < analysis->window.end_ns)
		analysis->recorded.end_ns = analysis->window.end_ns;
}
