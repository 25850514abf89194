/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>

#include "analyzer/base/times.h"
#include "analyzer/roles/roles.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/timeline/stack_work.h"
#include "analyzer/waits/window.h"

/* Adds the reads of files in the wide spans, up to the samples of other work around: they also show loading
 * that no sample shows, because the trainer slept. */
static int reads_add(const struct timeline_thread *trainer, const struct interval_list *wide, uint64_t end_ns,
		     struct interval_list *spans, uint64_t *bytes)
{
	for (size_t i = 0; i < trainer->n_calls && trainer->calls[i].begin_ns < end_ns; i++) {
		const struct timeline_call *call = &trainer->calls[i];

		if (!call_read_bytes(call) || !interval_list_cover(wide, call->begin_ns, call->end_ns))
			continue;
		*bytes += call_read_bytes(call);
		if (interval_list_add(spans, call->begin_ns, call->end_ns) < 0)
			return -ENOMEM;
	}
	return 0;
}

int restore_find(const struct study *study, struct analysis_restored *ret_restored)
{
	const struct timeline_thread *trainer = study->roles->trainer;
	uint64_t end_ns = study->window->steps[0].backward_ns;
	struct stack_bounds bounds = {.times = &end_ns, .n_times = 1};
	struct analysis_restored restored = {0};
	struct interval_list spans = {0}, wide = {0};
	int r = stack_spans_find(study->samples, trainer, STACK_LOAD, &bounds, &spans);

	bounds.wide = true;
	if (r == 0)
		r = stack_spans_find(study->samples, trainer, STACK_LOAD, &bounds, &wide);
	interval_list_tidy(&wide);
	if (r == 0)
		r = reads_add(trainer, &wide, end_ns, &spans, &restored.bytes);
	interval_list_tidy(&spans);
	for (size_t i = 0; r == 0 && i < spans.n && spans.items[i].begin_ns < end_ns; i++)
		restored.ns += min_ns(spans.items[i].end_ns, end_ns) - spans.items[i].begin_ns;
	interval_list_free(&spans);
	interval_list_free(&wide);
	if (r == 0)
		*ret_restored = restored;
	return r;
}
