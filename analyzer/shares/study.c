/* SPDX-License-Identifier: Apache-2.0 */
#include "study.h"

#include "analyzer/analysis.h"

void analysis_cover_window(struct analysis *analysis)
{
	if (analysis->begin_ns > analysis->window_begin_ns)
		analysis->begin_ns = analysis->window_begin_ns;
	if (analysis->end_ns < analysis->window_end_ns)
		analysis->end_ns = analysis->window_end_ns;
}
