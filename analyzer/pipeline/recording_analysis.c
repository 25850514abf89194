/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/recording_analysis.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/recording.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "analyzer/trace/recording_metadata.h"

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
		if (array_reserve(events, n, n_allocated) < 0)
			return error_set(err, -ENOMEM, "not enough memory for more than %zu events", n);
		events[n++] = *event;
	}
	if (r < 0)
		return error_errno(err, r, "cannot read the recording's events");
	*ret_events = steal_pointer(events);
	*ret_n = n;
	return 0;
}

/* Finds when records were lost. Losses that no event dates may have happened at any time. */
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

/* Data that an analysis needs in addition to the numbers of its input. */
struct material {
	struct event *events;
	struct analysis_loss *losses;
	char *command;
	struct recording_gpu gpu;
	struct recording_paths paths;
	struct recording_profile profile;
};

static void material_free(struct material *material)
{
	free(material->events);
	free(material->losses);
	free(material->command);
	recording_gpu_free(&material->gpu);
	recording_paths_free(&material->paths);
	recording_profile_free(&material->profile);
}

static struct analysis_input facts(struct recording *recording,
				   const struct recording_analysis_options *options)
{
	struct analysis_input input = {
	    .begin_ns = number(recording, RECORDING_START_NS),
	    .end_ns = number(recording, RECORDING_STOP_NS),
	    .root_tgid = (uint32_t)number(recording, RECORDING_ROOT_TGID),
	    .trainer_tid = options->trainer_tid ? options->trainer_tid
						: (uint32_t)number(recording, RECORDING_TRAINER_TID),
	    .several = options->several,
	    .n_lane_segments_max = options->n_lane_segments_max,
	    .checkpoint_overhead_max = options->checkpoint_overhead_max,
	    .what_if = options->what_if,
	    .grid = options->grid,
	    .n_cpus = (uint32_t)number(recording, RECORDING_CPUS),
	    .attached = number(recording, RECORDING_ATTACHED),
	    .detail_bytes_per_minute = number(recording, RECORDING_DETAIL_BYTES),
	    .bpf_cost_unknown = !number(recording, RECORDING_BPF_SAMPLED_NS),
	    .self_cpu_ns =
		number(recording, RECORDING_BPF_RUN_NS) + number(recording, RECORDING_RECORDER_CPU_NS),
	    .page_bytes = (uint32_t)number(recording, RECORDING_PAGE_BYTES),
	};

	/* A truncated recording lacks its end time, so this takes it from the events. */
	if (input.end_ns < input.begin_ns)
		input.begin_ns = input.end_ns = 0;
	return input;
}

static int metadata_load(struct recording *recording, struct material *material, struct analysis_input *input)
{
	struct recording_gpu *gpu = &material->gpu;
	int r = recording_gpu_load(recording, gpu);

	if (r == 0)
		r = recording_profile_load(recording, &material->profile);
	if (r == 0)
		r = recording_paths_load(recording, &material->paths);
	if (r < 0)
		return r;
	input->gpu_library = gpu->library[0] ? gpu->library : NULL;
	input->gpu_probes = input->gpu_library ? &gpu->probes : NULL;
	input->gpu_samples = gpu->samples;
	input->n_gpu_samples = gpu->n_samples;
	input->phase_labels = gpu->labels;
	input->n_phase_labels = gpu->n_labels;
	input->paths = material->paths.items;
	input->n_paths = material->paths.n;
	input->profile = &material->profile.metadata;
	return 0;
}

int recording_analyze(struct recording *recording, const struct recording_analysis_options *options,
		      struct analysis **ret_analysis, struct error *err)
{
	_cleanup_(material_free) struct material material = {0};
	struct analysis_input input = facts(recording, options);
	int r = events_load(recording, &material.events, &input.n_events, err);

	if (r < 0)
		return r;
	input.events = material.events;
	r = metadata_load(recording, &material, &input);
	if (r < 0)
		return error_errno(err, r, "cannot read the recording's metadata events");
	r = losses_find(recording, material.events, input.n_events, &material.losses, &input.n_losses);
	if (r < 0)
		return error_set(err, r, "not enough memory for the list of lost records");
	input.losses = material.losses;
	if (!input.attached && recording_get_text(recording, RECORDING_COMMAND, &material.command) == 0)
		input.command = material.command;
	return analysis_run(&input, ret_analysis, err);
}
