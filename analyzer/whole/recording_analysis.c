/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording_analysis.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/recording.h"
#include "lib/cleanup.h"
#include "recording_gpu.h"
#include "recording_paths.h"
#include "recording_profile.h"

static uint64_t number(struct recording *recording, const char *key)
{
	uint64_t value;

	return recording_get_u64(recording, key, &value) == 0 ? value : 0;
}

static void recording_cursor_closep(struct recording_cursor **cursor)
{
	recording_cursor_close(*cursor);
}

static int events_load(struct recording *recording, struct event **ret_events, size_t *ret_n,
		       struct error *err)
{
	_cleanup_(recording_cursor_closep) struct recording_cursor *cursor = NULL;
	_cleanup_(freep) struct event *events = NULL;
	size_t n = 0, n_allocated = 0;
	const struct event *event;
	int r;

	r = recording_cursor_open(recording, NULL, &cursor, err);
	if (r < 0)
		return r;
	while ((r = recording_cursor_next(cursor, &event)) > 0) {
		if (n == n_allocated) {
			struct event *grown;

			n_allocated = n_allocated ? 2 * n_allocated : 1 << 16;
			grown = reallocarray(events, n_allocated, sizeof(*events));
			if (!grown)
				return error_set(err, -ENOMEM, "not enough memory for more than %zu events",
						 n);
			events = grown;
		}
		events[n++] = *event;
	}
	if (r < 0)
		return error_errno(err, r, "cannot read the recording's events");
	*ret_events = steal_pointer(events);
	*ret_n = n;
	return 0;
}

/* When records were lost. Of those that no event dates it can have been at any time. */
static int losses_find(struct recording *recording, const struct event *events, size_t n_events,
		       struct analysis_loss **ret_losses, size_t *ret_n)
{
	uint64_t undated = number(recording, RECORDING_LOST_EVENTS);
	size_t n = 0, n_allocated = 1;
	struct analysis_loss *losses;

	for (size_t i = 0; i < n_events; i++)
		n_allocated += events[i].type == EVENT_LOSS;
	losses = calloc(n_allocated, sizeof(*losses));
	if (!losses)
		return -ENOMEM;
	for (size_t i = 0; i < n_events; i++) {
		const struct event *event = &events[i];

		if (event->type != EVENT_LOSS)
			continue;
		losses[n++] = (struct analysis_loss){event->start_ns, event->end_ns, event->loss.n};
		undated -= event->loss.n < undated ? event->loss.n : undated;
	}
	if (undated)
		losses[n++] = (struct analysis_loss){0, UINT64_MAX, undated};
	*ret_losses = losses;
	*ret_n = n;
	return 0;
}

int recording_analyze(struct recording *recording, const struct recording_analysis_options *options,
		      struct analysis **ret_analysis, struct error *err)
{
	_cleanup_(freep) struct event *events = NULL;
	_cleanup_(freep) struct analysis_loss *losses = NULL;
	_cleanup_(freep) char *command = NULL;
	_cleanup_(recording_gpu_free) struct recording_gpu gpu = {0};
	_cleanup_(recording_paths_free) struct recording_paths paths = {0};
	_cleanup_(recording_profile_free) struct recording_profile profile = {0};
	struct analysis_input input = {
	    .begin_ns = number(recording, RECORDING_START_NS),
	    .end_ns = number(recording, RECORDING_STOP_NS),
	    .root_tgid = (uint32_t)number(recording, RECORDING_ROOT_TGID),
	    .trainer_tid = options->trainer_tid ? options->trainer_tid
						: (uint32_t)number(recording, RECORDING_TRAINER_TID),
	    .n_lane_segments_max = options->n_lane_segments_max,
	    .checkpoint_overhead_max = options->checkpoint_overhead_max,
	    .what_if = options->what_if,
	    .n_cpus = (uint32_t)number(recording, RECORDING_CPUS),
	    .attached = number(recording, RECORDING_ATTACHED),
	    .detail_bytes_per_minute = number(recording, RECORDING_DETAIL_BYTES),
	    .bpf_cost_unknown = !number(recording, RECORDING_BPF_SAMPLED_NS),
	    .self_cpu_ns =
		number(recording, RECORDING_BPF_RUN_NS) + number(recording, RECORDING_RECORDER_CPU_NS),
	};
	int r;

	r = events_load(recording, &events, &input.n_events, err);
	if (r < 0)
		return r;
	r = recording_gpu_load(recording, &gpu);
	if (r < 0)
		return error_errno(err, r, "cannot read the recording's notes");
	input.gpu_library = gpu.library[0] ? gpu.library : NULL;
	input.gpu_probes = input.gpu_library ? &gpu.probes : NULL;
	input.gpu_samples = gpu.samples;
	input.n_gpu_samples = gpu.n_samples;
	input.phase_labels = gpu.labels;
	input.n_phase_labels = gpu.n_labels;
	r = recording_profile_load(recording, &profile);
	if (r == 0)
		r = recording_paths_load(recording, &paths);
	if (r < 0)
		return error_errno(err, r, "cannot read the recording's notes");
	input.paths = paths.items;
	input.n_paths = paths.n;
	input.page_bytes = (uint32_t)number(recording, RECORDING_PAGE_BYTES);
	/* A recording that was cut off has no end: the events have. */
	if (input.end_ns < input.begin_ns)
		input.begin_ns = input.end_ns = 0;
	input.events = events;
	input.profile = &profile.notes;
	r = losses_find(recording, events, input.n_events, &losses, &input.n_losses);
	if (r < 0)
		return error_set(err, r, "not enough memory for the recording's losses");
	input.losses = losses;
	if (!number(recording, RECORDING_ATTACHED) &&
	    recording_get_text(recording, RECORDING_COMMAND, &command) == 0)
		input.command = command;
	return analysis_run(&input, ret_analysis, err);
}
