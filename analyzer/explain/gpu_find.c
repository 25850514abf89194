/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "bpf/gpu.h"
#include "analyzer/base/interval.h"
#include "lib/cleanup.h"
#include "analyzer/shares/partition.h"
#include "analyzer/waits/waits.h"
#include "analyzer/waits/window.h"
#include "analyzer/base/times.h"

/* Counters of a process. They only grow, so the last values before a time are valid at that time. */
struct gpu_counters {
	uint64_t at_ns, n_launches, n_copies;
};

struct gpu_finder {
	const struct study *study;
	uint32_t tgid;
	uint64_t begin_ns, end_ns; /* limits of the window */
	struct interval_list waits;
	struct gpu_use *use;
	struct gpu_call calls[GPU_FUNCTIONS];
	struct gpu_counters before, until; /* counters at the window's start, and at its end */
	struct gpu_counters total;         /* counters at the recording's end */
	bool any;
};

static void counters_update(struct gpu_counters *counters, const struct event *event, uint64_t limit_ns)
{
	if (event->end_ns > limit_ns || event->end_ns < counters->at_ns)
		return;
	*counters = (struct gpu_counters){event->end_ns, max_ns(counters->n_launches, event->gpu.n_launches),
					  max_ns(counters->n_copies, event->gpu.n_copies)};
}

static void call_add(struct gpu_finder *finder, const struct event *event)
{
	uint64_t begin_ns = max_ns(event->start_ns, finder->begin_ns);
	uint64_t end_ns = min_ns(event->end_ns, finder->end_ns);
	const struct timeline_thread *thread;
	struct gpu_call *call;

	if (begin_ns >= end_ns || event->gpu.function >= GPU_FUNCTIONS)
		return;
	call = &finder->calls[event->gpu.function];
	call->n++;
	call->ns += end_ns - begin_ns;
	thread = timeline_find(finder->study->timeline, event->tid, begin_ns);
	if (thread)
		call->spin_ns += timeline_account(thread, begin_ns, end_ns).cpu_ns;
}

static void event_add(struct gpu_finder *finder, const struct event *event)
{
	if (event->tgid != finder->tgid || event->start_ns > event->end_ns)
		return;
	if (event->type == EVENT_GPU_TOTALS)
		finder->total = (struct gpu_counters){event->end_ns, event->gpu_totals.n_launches,
						      event->gpu_totals.n_copies};
	if (event->type != EVENT_GPU_WAIT && event->type != EVENT_GPU_WORK)
		return;
	finder->any = true;
	counters_update(&finder->before, event, finder->begin_ns);
	counters_update(&finder->until, event, finder->end_ns);
	if (event->type == EVENT_GPU_WAIT)
		call_add(finder, event);
	else
		finder->use->starved_ns +=
		    interval_list_cover(&finder->waits, max_ns(event->start_ns, finder->begin_ns),
					min_ns(event->end_ns, finder->end_ns));
}

static int call_compare(const void *left, const void *right)
{
	const struct gpu_call *a = left, *b = right;

	return a->ns > b->ns ? -1 : a->ns < b->ns;
}

static int calls_keep(struct gpu_finder *finder)
{
	struct gpu_use *use = finder->use;

	use->calls = calloc(GPU_FUNCTIONS, sizeof(*use->calls));
	if (!use->calls)
		return -ENOMEM;
	for (uint32_t i = 0; i < GPU_FUNCTIONS; i++) {
		if (!finder->calls[i].n)
			continue;
		use->calls[use->n_calls] = finder->calls[i];
		snprintf(use->calls[use->n_calls].name, sizeof(use->calls[0].name), "%s",
			 gpu_function_name(i));
		use->n_calls++;
	}
	qsort(use->calls, use->n_calls, sizeof(*use->calls), call_compare);
	return 0;
}

static double utilization(const struct analysis_input *input, uint64_t begin_ns, uint64_t end_ns)
{
	double sum = 0;
	size_t n = 0;

	for (size_t i = 0; i < input->n_gpu_samples; i++) {
		const struct gpu_sample *sample = &input->gpu_samples[i];

		if (sample->at_ns < begin_ns || sample->at_ns >= end_ns)
			continue;
		sum += sample->utilization;
		n++;
	}
	return n ? sum / (double)n : NAN;
}

static void probes_show(const struct gpu_probes *probes, struct gpu_use *use)
{
	use->launches_known = !probes || !probes->launches_until_ns;
	if (!probes)
		return;
	use->n_probed = probes->n_probed;
	use->n_expensive = probes->n_expensive;
	use->n_missing = probes->n_missing;
	use->n_refused = probes->n_refused;
}

static int fill(struct gpu_finder *finder)
{
	const struct study *study = finder->study;
	struct gpu_use *use = finder->use;
	int r = data_waits_intervals(finder->study->waits, &finder->waits);

	if (r < 0)
		return r;
	for (size_t i = 0; i < study->input->n_events; i++)
		event_add(finder, &study->input->events[i]);
	/* Without a synchronisation the counters have no time, so this uses the recording's totals. */
	if (!finder->until.at_ns)
		finder->until = finder->total;
	use->n_launches = finder->until.n_launches - finder->before.n_launches;
	use->n_copies = finder->until.n_copies - finder->before.n_copies;
	use->wait_ns = partition_gpu_wait(study->partition, finder->begin_ns, finder->end_ns, &use->spin_ns);
	use->utilization = utilization(study->input, finder->begin_ns, finder->end_ns);
	snprintf(use->library, sizeof(use->library), "%s",
		 study->input->gpu_library ? study->input->gpu_library : "");
	probes_show(study->input->gpu_probes, use);
	return calls_keep(finder);
}

static void gpu_use_freep(struct gpu_use **use)
{
	gpu_use_free(*use);
}

int gpu_find(const struct study *study, struct gpu_use **ret_use)
{
	_cleanup_(gpu_use_freep) struct gpu_use *use = calloc(1, sizeof(*use));
	struct gpu_finder finder = {.study = study,
				    .tgid = study->roles->trainer->tgid,
				    .begin_ns = study->window->begin_ns,
				    .end_ns = study->window->end_ns,
				    .use = use};
	int r;

	if (!use)
		return -ENOMEM;
	r = fill(&finder);
	interval_list_free(&finder.waits);
	if (r < 0)
		return r;
	*ret_use = finder.any || study->input->gpu_library ? steal_pointer(use) : NULL;
	return 0;
}

void gpu_use_free(struct gpu_use *use)
{
	if (!use)
		return;
	free(use->calls);
	free(use);
}
