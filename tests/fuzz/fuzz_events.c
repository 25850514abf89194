/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as the events of a recording. Whatever they are, the analysis ends, and its shares
 * sum to the observed time. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"

#define EVENTS_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct analysis_input input = {.n_cpus = 2};
	struct analysis *analysis = NULL;
	struct event *events;
	uint64_t sum_ns = 0;

	input.n_events = size / sizeof(*events);
	if (input.n_events > EVENTS_MAX)
		input.n_events = EVENTS_MAX;
	/* An aligned copy of exactly this size lets sanitizers notice a read past the end. */
	events = malloc(input.n_events * sizeof(*events) + !input.n_events);
	if (!events)
		return 0;
	memcpy(events, data, input.n_events * sizeof(*events));
	input.events = events;
	if (input.n_events)
		input.root_tgid = events[0].tgid;
	if (analysis_run(&input, &analysis, NULL) < 0)
		abort();
	for (size_t i = 0; i < SHARE_COUNT; i++)
		sum_ns += analysis->share_ns[i];
	if (sum_ns != analysis->window.observed_ns)
		abort();
	analysis_free(analysis);
	free(events);
	return 0;
}
