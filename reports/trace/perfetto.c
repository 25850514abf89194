/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <errno.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "perfetto_trace.h"

/* Ids of tracks. Each kind has a range of its own, and 0 is Perfetto's. */
enum track_base {
	TRACKS_OF_JOB = 1,
	TRACK_STEPS = 2,
	TRACK_WAITS = 3,
	TRACK_CHECKPOINTS = 4,
	TRACK_READY = 5,
	TRACKS_OF_PROCESSES = 1000,
	TRACKS_OF_LANES = 2000,
	TRACKS_OF_BATCHES = 3000,
	TRACKS_OF_GPU = 4000,
};

struct perfetto {
	struct perfetto_trace *trace;
	const struct analysis *analysis;
};

/* The trainer's process has the first id; every other one has that of its first lane. */
static uint64_t process_of(const struct perfetto *perfetto, size_t lane)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lane; i++)
		if (lanes->items[i].tgid == lanes->items[lane].tgid)
			return TRACKS_OF_PROCESSES + i;
	return TRACKS_OF_PROCESSES + lane;
}

static void declare_lanes(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_items; i++) {
		const struct lane *lane = &lanes->items[i];
		uint64_t process = process_of(perfetto, i);

		if (process == TRACKS_OF_PROCESSES + i)
			perfetto_process(perfetto->trace, process, lane->tgid, lane->name, (int)i);
		perfetto_thread(perfetto->trace, TRACKS_OF_LANES + i, process, lane->tgid, lane->tid,
				lane->name, (int)(10 + i));
		if (lane->n_batches)
			perfetto_track(perfetto->trace, TRACKS_OF_BATCHES + i, process, "batches", 1);
		for (size_t k = 0; k < lanes->n_gpu_calls; k++)
			if (lanes->gpu_calls[k].lane == i) {
				perfetto_track(perfetto->trace, TRACKS_OF_GPU + i, process, "GPU waits", 5);
				break;
			}
	}
}

static void declare_job(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;
	uint64_t trainer = lanes && lanes->n_items ? TRACKS_OF_PROCESSES : 0;

	perfetto_track(perfetto->trace, TRACK_STEPS, trainer, "steps", 1);
	if (lanes && lanes->n_waits)
		perfetto_track(perfetto->trace, TRACK_WAITS, trainer, "data waits", 2);
	if (perfetto->analysis->checkpoints)
		perfetto_track(perfetto->trace, TRACK_CHECKPOINTS, trainer, "checkpoints", 3);
	if (lanes && lanes->n_levels)
		perfetto_counter(perfetto->trace, TRACK_READY, trainer, "ready batches", 4);
}

static double ms(uint64_t ns)
{
	return (double)ns / (double)NS_PER_MS;
}

static void write_steps(const struct perfetto *perfetto)
{
	for (size_t i = 0; i < perfetto->analysis->n_steps; i++) {
		const struct analysis_step *step = &perfetto->analysis->steps[i];
		const struct perfetto_argument arguments[] = {
		    {"number", (double)i + 1},
		    {"fetch_stall_ms", ms(step->share_ns[SHARE_FETCH_STALL])},
		    {"prep_stall_ms", ms(step->share_ns[SHARE_PREP_STALL])},
		    {"checkpoint_ms", ms(step->share_ns[SHARE_CHECKPOINT_STALL])},
		    {"cpu_starved_ms", ms(step->share_ns[SHARE_CPU_STARVED])},
		    {"compiling_ms", ms(step->share_ns[SHARE_COMPILING])},
		    {"device_ms", ms(step->share_ns[SHARE_DEVICE])},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_STEPS, step->begin_ns, step->end_ns,
							step->complete ? "step" : "step, events lost",
							arguments});
	}
}

static void write_waits(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; lanes && i < lanes->n_waits; i++) {
		const struct lane_wait *wait = &lanes->waits[i];
		const struct perfetto_argument arguments[] = {
		    {"fetch_stall_ms", ms(wait->fetch_ns)},
		    {"prep_stall_ms", ms(wait->end_ns - wait->begin_ns - wait->fetch_ns)},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_WAITS, wait->begin_ns, wait->end_ns,
							"data wait", arguments});
	}
}

static void write_checkpoints(const struct perfetto *perfetto)
{
	const struct checkpoint_report *report = perfetto->analysis->checkpoints;

	for (size_t i = 0; report && i < report->n_items; i++) {
		const struct checkpoint_item *item = &report->items[i];
		const struct perfetto_argument arguments[] = {
		    {"bytes", (double)item->bytes},
		    {"write_ms", ms(item->write_ns)},
		    {"fsync_ms", ms(item->fsync_ns)},
		    {"writeback_ms", ms(item->writeback_ns)},
		    {0},
		};

		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACK_CHECKPOINTS, item->begin_ns, item->end_ns,
							"checkpoint", arguments});
	}
}

static void write_lane(const struct perfetto *perfetto, size_t index)
{
	const struct lane *lane = &perfetto->analysis->lanes->items[index];

	for (size_t i = 0; i < lane->n_segments; i++) {
		const struct lane_segment *segment = &lane->segments[i];

		if (segment->state == LANE_IDLE) /* nothing to see */
			continue;
		perfetto_slice(perfetto->trace, &(struct perfetto_slice){
						    TRACKS_OF_LANES + index, segment->begin_ns,
						    segment->end_ns, lane_state_name(segment->state), NULL});
	}
	for (size_t i = 0; i < lane->n_batches; i++)
		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){TRACKS_OF_BATCHES + index, lane->batches[i].begin_ns,
							lane->batches[i].end_ns, "batch", NULL});
}

static void write_gpu_calls(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_gpu_calls; i++)
		perfetto_slice(perfetto->trace,
			       &(struct perfetto_slice){
				   TRACKS_OF_GPU + lanes->gpu_calls[i].lane, lanes->gpu_calls[i].begin_ns,
				   lanes->gpu_calls[i].end_ns, lanes->gpu_calls[i].function, NULL});
}

static void write_wakes(const struct perfetto *perfetto)
{
	const struct lanes *lanes = perfetto->analysis->lanes;

	for (size_t i = 0; i < lanes->n_wakes; i++) {
		const struct lane_wake *wake = &lanes->wakes[i];

		perfetto_arrow(perfetto->trace, TRACKS_OF_LANES + wake->from, wake->waking_ns, "wakes", i + 1,
			       false);
		perfetto_arrow(perfetto->trace, TRACKS_OF_LANES + wake->to, wake->run_ns, "woken", i + 1,
			       true);
	}
	for (size_t i = 0; i < lanes->n_levels; i++)
		perfetto_value(perfetto->trace, TRACK_READY, lanes->levels[i].at_ns,
			       lanes->levels[i].n_ready);
}

int report_perfetto(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	static const struct clock_snapshot nothing;
	struct perfetto perfetto = {.analysis = analysis};
	int r;

	errno = 0;
	r = perfetto_trace_new(stream, source ? &source->clocks : &nothing, &perfetto.trace);
	if (r < 0)
		return r;
	if (analysis->lanes)
		declare_lanes(&perfetto);
	declare_job(&perfetto);
	write_steps(&perfetto);
	write_waits(&perfetto);
	write_checkpoints(&perfetto);
	for (size_t i = 0; analysis->lanes && i < analysis->lanes->n_items; i++)
		write_lane(&perfetto, i);
	if (analysis->lanes) {
		write_gpu_calls(&perfetto);
		write_wakes(&perfetto);
	}
	r = perfetto_trace_finish(perfetto.trace);
	if (r == 0 && (fflush(stream) || ferror(stream)))
		r = errno ? -errno : -EIO;
	return r;
}
