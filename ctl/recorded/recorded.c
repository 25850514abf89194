/* SPDX-License-Identifier: Apache-2.0 */
#include "recorded/recorded.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/seconds.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"

/* Minimum known part of a second. With less, the second's shares are unknown. */
#define KNOWN_MIN_RATIO 0.2

/* Limit on lane segments (48 MiB). The seconds of a longer recording are summed from cells, with each state's
 * share of the time. */
#define LANE_SEGMENTS_MAX (UINT64_C(2) << 20)

/* Maximum number of seconds: a month. No recording is longer, so the times in a longer file are wrong. */
#define ROUNDS_MAX (UINT64_C(31) * 24 * 3600)

/* Data of the whole recording. */
struct recorded_source {
	const struct analysis *analysis;
	double batch_samples;
};

static double per(uint64_t ns, double whole)
{
	return whole > 0 ? (double)ns / (double)NS_PER_S / whole : NAN;
}

static void fill_shares(const struct recorded_source *source, const struct analysis_interval *s,
			struct stall_sample *sample)
{
	double share[SHARE_COUNT];

	if ((double)s->known_ns < KNOWN_MIN_RATIO * sample->covered_s * (double)NS_PER_S)
		return;
	for (size_t i = 0; i < SHARE_COUNT; i++)
		share[i] = (double)s->share_ns[i] / (double)s->known_ns;
	sample->source = source->analysis->sampled.is ? STALL_SOURCE_PROCESS : STALL_SOURCE_BPF;
	sample->shares = (struct stall_shares){
	    .device = share[SHARE_DEVICE],
	    .gpu_wait =
		source->analysis->parts.gpu_wait_known ? (double)s->gpu_wait_ns / (double)s->known_ns : NAN,
	    .fetch_stall = share[SHARE_FETCH_STALL],
	    .prep_stall = share[SHARE_PREP_STALL],
	    .checkpoint_stall = share[SHARE_CHECKPOINT_STALL],
	    .cpu_starved = share[SHARE_CPU_STARVED],
	    .other =
		share[SHARE_OTHER] + share[SHARE_COMPILING], /* neither of these can be changed by tuning */
	};
	sample->run_queue_ratio = (double)s->queue_ns / (double)s->known_ns;
}

/* fetch_rate and prep_rate are those of a replay of the whole recording; device_rate is this second's. */
static void fill_rates(const struct recorded_source *source, struct stall_sample *sample)
{
	const struct predictions *p = source->analysis->predictions;
	const struct page_cache *cache = source->analysis->page_cache;
	double working = 1 - sample->shares.fetch_stall - sample->shares.prep_stall;

	if (sample->samples_per_s > 0 && working > 0.01)
		sample->device_rate = sample->samples_per_s / working;
	if (p) {
		sample->fetch_rate = p->fetch_rate.value;
		sample->prep_rate = p->prep_rate.value;
		sample->source_bytes_per_s = p->storage_bytes_per_s.value;
	}
	if (cache)
		sample->memory_hit_ratio = page_cache_hit_ratio(cache->accessed_pages, cache->missed_pages);
}

/* Sets the cost of a sample: CPU time and fetches of the workers, because the workers of this loader read
 * data themselves. */
static void fill_work(const struct recorded_source *source, const struct analysis_interval *s,
		      struct stall_sample *sample)
{
	enum analysis_loader loader = source->analysis->job.loader;
	double n_samples = (double)s->n_batches * source->batch_samples;
	uint64_t worker_ns = s->worker_cpu_ns + s->worker_fetch_ns;

	if (loader == LOADER_WORKERS || (loader == LOADER_DIESEL && s->n_workers)) {
		sample->client_cpu_s_per_sample = per(worker_ns, n_samples);
		sample->client_workers_busy = per(worker_ns, sample->covered_s);
		sample->knobs.value[TUNER_CLIENT_WORKERS] = s->n_workers;
		sample->tunable = 1u << TUNER_CLIENT_WORKERS;
	} else if (loader == LOADER_INLINE) {
		sample->client_cpu_s_per_sample =
		    per(s->share_ns[SHARE_PREP_STALL] + s->share_ns[SHARE_FETCH_STALL],
			s->n_steps * source->batch_samples);
		sample->tunable = 1u << TUNER_CLIENT_WORKERS;
	}
}

static struct stall_sample sample_of(const struct recorded_source *source, uint64_t begin_ns, uint64_t end_ns)
{
	struct analysis_interval s = analysis_interval(source->analysis, begin_ns, end_ns);
	struct stall_sample sample = stall_sample_unknown();

	sample.job = source->analysis->job.trainer_tgid ? source->analysis->job.trainer_tgid : 1;
	sample.at_ns = end_ns;
	sample.covered_s = (double)(end_ns - begin_ns) / (double)NS_PER_S;
	sample.n_trainers = source->analysis->job.n_trainers ? source->analysis->job.n_trainers : 1;
	sample.batch = source->batch_samples >= 1 ? (uint32_t)source->batch_samples : 0;
	sample.steps_per_s = s.n_steps / sample.covered_s;
	sample.samples_per_s = sample.steps_per_s * source->batch_samples;
	sample.step_p50_s = s.step_p50_s;
	sample.step_p95_s = s.step_p95_s;
	fill_shares(source, &s, &sample);
	fill_work(source, &s, &sample);
	fill_rates(source, &sample);
	return sample;
}

/* Turns the recording's clock into wall-clock time. */
struct recorded_clock {
	uint64_t monotonic_ns, realtime_ns; /* 0: not known */
};

static int visit_rounds(const struct analysis *analysis, const struct recorded_clock *clock,
			int (*visit)(void *user, const struct history_round *round), void *user)
{
	const struct tuner_config config = tuner_config_default();
	struct recorded_source source = {.analysis = analysis, .batch_samples = 1};
	struct stall_node node = stall_node_unknown();
	uint64_t n_rounds = (analysis->window.end_ns - analysis->window.begin_ns) / NS_PER_S;
	int r = 0;

	if (analysis->window.end_ns < analysis->window.begin_ns || n_rounds > ROUNDS_MAX)
		return -E2BIG;
	if (analysis->predictions && analysis->predictions->batch_samples > 0)
		source.batch_samples = analysis->predictions->batch_samples;
	if (analysis->job.n_cpus)
		node.cores = analysis->job.n_cpus;
	for (uint64_t i = 1; r == 0 && i <= n_rounds; i++) {
		uint64_t at_ns = analysis->window.begin_ns + i * NS_PER_S;
		struct stall_sample sample = sample_of(&source, at_ns - NS_PER_S, at_ns);
		struct history_round round = {.now_ns = at_ns,
					      .at_ms = (at_ns - clock->monotonic_ns + clock->realtime_ns) /
						       NS_PER_MS,
					      .config = &config,
					      .node = &node,
					      .samples = &sample,
					      .n_samples = 1};

		r = visit(user, &round);
	}
	return r;
}

static struct recorded_clock clock_of(struct recording *recording)
{
	_cleanup_(freep) char *text = NULL;
	struct recorded_clock clock;

	if (recording_get_text(recording, RECORDING_START_CLOCKS, &text) < 0 ||
	    sscanf(text, "%" SCNu64 " %*u %" SCNu64, &clock.monotonic_ns, &clock.realtime_ns) != 2)
		return (struct recorded_clock){0};
	return clock;
}

int recorded_rounds(const char *path, int (*visit)(void *user, const struct history_round *round), void *user,
		    struct recorded_info *ret_info, struct error *err)
{
	const struct recording_analysis_options options = {.n_lane_segments_max = LANE_SEGMENTS_MAX};
	struct recording *recording = NULL;
	struct analysis *analysis = NULL;
	struct recorded_info info = {0};
	struct recorded_clock clock;
	int r = recording_open(path, &recording, err);

	if (r < 0)
		return r;
	clock = clock_of(recording);
	r = recording_analyze(recording, &options, &analysis, err);
	info.cut_off = !recording_complete(recording);
	recording_close(recording);
	if (r < 0)
		return r;
	info.sampled = analysis->sampled.is;
	if (analysis->verdict == ANALYSIS_INSUFFICIENT)
		snprintf(info.insufficient, sizeof(info.insufficient), "%s", analysis->insufficient);
	else
		r = visit_rounds(analysis, &clock, visit, user);
	if (r == -E2BIG)
		error_set(err, r, "%s is damaged: its times span more than a month", path);
	analysis_free(analysis);
	*ret_info = info;
	return r;
}
