/* SPDX-License-Identifier: Apache-2.0 */
#include "compiling.h"

#include <errno.h>

static bool python_seen(const struct timeline *timeline, const struct roles *roles,
			const struct stack_samples *samples)
{
	for (size_t i = 0; i < samples->n; i++) {
		enum role role = (enum role)roles->of[samples->items[i].thread - timeline->threads];

		if (samples->items[i].python && (role == ROLE_TRAINER || role == ROLE_HELPER))
			return true;
	}
	return false;
}

int compiling_find(const struct timeline *timeline, const struct roles *roles,
		   const struct stack_samples *samples, const uint64_t *times, size_t n_times,
		   struct compiling *compiling)
{
	const struct stack_bounds bounds = {.times = times, .n_times = n_times};
	int r = 0;

	*compiling = (struct compiling){.known = python_seen(timeline, roles, samples)};
	for (size_t i = 0; i < timeline->n_threads && r == 0; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (roles->of[i] == ROLE_TRAINER)
			r = stack_spans_find(samples, thread, STACK_COMPILE, &bounds, &compiling->trainer);
		else if (roles->of[i] == ROLE_HELPER)
			r = stack_spans_find(samples, thread, STACK_COMPILE, &bounds, &compiling->helpers);
	}
	interval_list_tidy(&compiling->trainer);
	interval_list_tidy(&compiling->helpers);
	if (r == 0)
		r = interval_list_append(&compiling->process, &compiling->trainer);
	if (r == 0)
		r = interval_list_append(&compiling->process, &compiling->helpers);
	interval_list_tidy(&compiling->process);
	return r;
}

void compiling_free(struct compiling *compiling)
{
	interval_list_free(&compiling->trainer);
	interval_list_free(&compiling->helpers);
	interval_list_free(&compiling->process);
	*compiling = (struct compiling){0};
}
