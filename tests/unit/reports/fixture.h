/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A made-up analysis with every part that a report can show, small enough to be checked by eye. Only
 * fixture_lanes() allocates memory, so analysis_free() must not be called.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/clock.h"
#include "reports/report.h"

#define FIXTURE_STEPS 120
#define FIXTURE_BEGIN (1000 * NS_PER_S)

/* Hostile text, which every report must escape. */
#define FIXTURE_HOSTILE                                                                                      \
	"</script><script>alert(1)</script><!-- \"'&\\ \x01\xff\xfe\xed\xa0\x80 {{data}} \xe2\x80\xa8 "      \
	"%s\n# EOF"

struct fixture {
	struct analysis analysis;
	struct analysis_step steps[FIXTURE_STEPS];
	struct page_cache cache;
	struct page_cache_place places[3];
	struct profile profile;
	struct profile_item libraries[3], functions[4];
	struct profile_stack stacks[6];
	struct gpu_use gpu;
	struct gpu_call calls[2];
	struct phase_times phases;
	struct checkpoint_report checkpoints;
	struct checkpoint_item checkpoint_items[2];
	struct predictions predictions;
	struct what_if_point points[WHAT_IF_AXES][5];
	struct analysis_rank ranks[4];
	struct lanes lanes;
	struct lane lane_items[4];
	struct lane_segment segments[4][8 * FIXTURE_STEPS];
	struct lane_batch batches[2][FIXTURE_STEPS];
	struct lane_wake wakes[2 * FIXTURE_STEPS];
	struct lane_wait waits[FIXTURE_STEPS];
	struct lane_level levels[2 * FIXTURE_STEPS];
	struct lane_gpu_call gpu_calls[FIXTURE_STEPS];
	char command[256], path[256], name[256], frames[256];
};

#define FIXTURE_COMPILES    4 /* index of the step that compiles for FIXTURE_COMPILING_S seconds */
#define FIXTURE_COMPILING_S 2

/* Fills in steps of 100 ms each, with 40 fetch, 20 prep, 5 starved, and the rest device. Every 50th step also
 * writes a checkpoint of 300 ms. */
static inline void fixture_steps(struct fixture *f)
{
	struct analysis *a = &f->analysis;
	uint64_t at_ns = FIXTURE_BEGIN;

	for (size_t i = 0; i < FIXTURE_STEPS; i++) {
		struct analysis_step *step = &f->steps[i];
		uint64_t wobble_ns = (i * 7919 % 20) * NS_PER_MS;

		*step = (struct analysis_step){.begin_ns = at_ns, .complete = true};
		step->share_ns[SHARE_FETCH_STALL] = 30 * NS_PER_MS + wobble_ns;
		step->share_ns[SHARE_PREP_STALL] = 20 * NS_PER_MS;
		step->share_ns[SHARE_CPU_STARVED] = 5 * NS_PER_MS;
		step->share_ns[SHARE_DEVICE] = 35 * NS_PER_MS;
		step->share_ns[SHARE_CHECKPOINT_STALL] = i % 50 == 49 ? 300 * NS_PER_MS : 0;
		step->excluded = i == FIXTURE_COMPILES;
		step->share_ns[SHARE_COMPILING] = step->excluded ? FIXTURE_COMPILING_S * NS_PER_S : 0;
		for (size_t k = 0; k < SHARE_COUNT; k++) {
			at_ns += step->share_ns[k];
			a->share_ns[k] += step->share_ns[k];
		}
		step->end_ns = at_ns;
		step->backward_ns = at_ns - 20 * NS_PER_MS;
	}
	a->steps = f->steps;
	a->n_steps = FIXTURE_STEPS;
	a->window.begin_ns = FIXTURE_BEGIN;
	a->window.end_ns = at_ns;
	a->window.observed_ns = at_ns - FIXTURE_BEGIN;
	a->recorded.begin_ns = FIXTURE_BEGIN - 2 * NS_PER_S;
	a->recorded.end_ns = at_ns + NS_PER_S;
	a->window.startup_ns = 2 * NS_PER_S;
	a->window.teardown_ns = NS_PER_S;
	a->wait_mean_ns = 60 * NS_PER_MS;
	a->wait_p95_ns = 69 * NS_PER_MS;
	a->recorded.coverage_ratio = 1;
	a->recorded.self_cost_ratio = 0.004;
	a->parts.gpu_wait_known = true;
	a->parts.gpu_wait_ns = 10 * FIXTURE_STEPS * NS_PER_MS;
	a->parts.head_of_line_ns = 3 * FIXTURE_STEPS * NS_PER_MS;
	a->parts.gil_ns = 2 * FIXTURE_STEPS * NS_PER_MS;
	a->steady.n_warmup_steps = 3;
	a->steady.warmup_ns = f->steps[2].end_ns - FIXTURE_BEGIN;
	a->compiling =
	    (struct analysis_excluded){.known = true, .ns = FIXTURE_COMPILING_S * NS_PER_S, .n_steps = 1};
	a->steady.n_excluded_steps = 1;
	a->steady.ns = a->window.observed_ns - a->steady.warmup_ns;
	for (size_t k = 0; k < SHARE_COUNT; k++)
		a->steady.share_ns[k] = a->share_ns[k] - f->steps[0].share_ns[k] - f->steps[1].share_ns[k] -
					f->steps[2].share_ns[k] - f->steps[FIXTURE_COMPILES].share_ns[k];
	a->steady.ns -= f->steps[FIXTURE_COMPILES].end_ns - f->steps[FIXTURE_COMPILES].begin_ns;
	a->window.read_bytes_known = true;
	a->window.read_bytes = UINT64_C(900) << 20;
}

static inline void fixture_job(struct fixture *f)
{
	struct analysis *a = &f->analysis;

	a->verdict = ANALYSIS_FETCH_BOUND;
	a->job.command = f->command;
	a->job.root_tgid = a->job.trainer_tgid = a->job.trainer_tid = 4242;
	a->job.trainer_ns_tgid = a->job.trainer_ns_tid = 7;
	a->job.n_trainers = 4;
	a->job.n_cpus = 8;
	a->job.loader = LOADER_WORKERS;
	a->job.method = METHOD_REPLAY;
	a->workers = (struct analysis_workers){.n = 2,
					       .n_at_once = 2,
					       .fetch_ns = 14 * NS_PER_S,
					       .cpu_ns = 6 * NS_PER_S,
					       .queue_ns = NS_PER_S,
					       .idle_ns = NS_PER_S,
					       .blocked_ns = NS_PER_S / 2,
					       .n_batches = FIXTURE_STEPS};
	a->n_evidence = 3;
	a->evidence[0] = (struct analysis_evidence){"worker", "reading files", 4600 * NS_PER_MS, true};
	a->evidence[1] =
	    (struct analysis_evidence){"worker", "decoding and transforming", 2100 * NS_PER_MS, false};
	a->evidence[2] =
	    (struct analysis_evidence){"trainer", "taking over the batch", 300 * NS_PER_MS, false};
	a->n_actions = 3;
	a->actions[0] = (struct analysis_action){
	    "Keep the dataset in memory: serve it with dieseld and a cache of 3.1 GiB",
	    1.66,
	    CONFIDENCE_HIGH,
	    {1.55, 1.41, 1.63}};
	a->actions[1] = (struct analysis_action){
	    "Use 4 workers instead of 2", 1.66, CONFIDENCE_MEDIUM, {1.38, 1.22, 1.52}};
	a->actions[2] = (struct analysis_action){
	    "Make preparing cheaper: fewer or faster transforms", 1.22, CONFIDENCE_LOW, {NAN, NAN, NAN}};
}

static inline void fixture_parts(struct fixture *f)
{
	struct analysis *a = &f->analysis;

	f->places[0] = (struct page_cache_place){f->path, 90000, 80000, 350 << 20, 312 << 20, 9000};
	f->places[1] = (struct page_cache_place){
	    (char *)"/data/train/n01440764/n01440764_10026.JPEG", 60000, 100, 234 << 20, 400 << 10, 5000};
	f->places[2] = (struct page_cache_place){(char *)"?", 0, 0, 1 << 20, 0, 3};
	f->cache = (struct page_cache){.page_bytes = 4096,
				       .accessed_pages = 150000,
				       .missed_pages = 80100,
				       .used_bytes = UINT64_C(900) << 20,
				       .cold_bytes = UINT64_C(313) << 20,
				       .direct_bytes = 1 << 20,
				       .n_reads = 14003,
				       .mapped = {.n_major_faults = 12,
						  .n_minor_faults = 4000,
						  .fault_ns = 30 * NS_PER_MS,
						  .read_ahead_pages = 64,
						  .n_read_aheads = 4,
						  .random_ratio = NAN},
				       .files = f->places,
				       .folders = f->places,
				       .n_files = 3,
				       .n_folders = 2};
	f->cache.read_sizes[12] = 4000;
	f->cache.read_sizes[16] = 10003;
	a->page_cache = &f->cache;
	f->libraries[0] = (struct profile_item){
	    .name = (char *)"libjpeg.so.62", .caller = (char *)"folder.py:pil_loader", .n_samples = 600};
	f->libraries[1] = (struct profile_item){.name = (char *)"libpython3.11.so", .n_samples = 300};
	f->libraries[2] = (struct profile_item){.name = f->name, .caller = f->name, .n_samples = 100};
	f->functions[0] = (struct profile_item){
	    .name = (char *)"jpeg_idct_islow", .library = (char *)"libjpeg.so.62", .n_samples = 400};
	f->functions[1] = (struct profile_item){
	    .name = (char *)"decode_mcu", .library = (char *)"libjpeg.so.62", .n_samples = 200};
	f->functions[2] = (struct profile_item){.name = (char *)"_PyEval_EvalFrameDefault",
						.library = (char *)"libpython3.11.so",
						.n_samples = 300};
	f->functions[3] = (struct profile_item){.name = f->name, .library = f->name, .n_samples = 100};
	f->stacks[0] = (struct profile_stack){
	    (char *)"worker.py:_worker_loop;fetch.py:fetch;folder.py:__getitem__;folder.py:pil_loader;"
		    "jpeg_read_scanlines;jpeg_idct_islow",
	    400};
	f->stacks[1] = (struct profile_stack){
	    (char *)"worker.py:_worker_loop;fetch.py:fetch;folder.py:__getitem__;folder.py:pil_loader;"
		    "jpeg_read_scanlines;decode_mcu",
	    200};
	f->stacks[2] = (struct profile_stack){
	    (char *)"worker.py:_worker_loop;fetch.py:fetch;transforms.py:__call__;_PyEval_EvalFrameDefault",
	    180};
	f->stacks[3] = (struct profile_stack){(char *)"worker.py:_worker_loop;fetch.py:fetch;collate.py:"
						      "default_collate;_PyEval_EvalFrameDefault",
					      120};
	f->stacks[4] = (struct profile_stack){(char *)"worker.py:_worker_loop;[kernel]", 60};
	f->stacks[5] = (struct profile_stack){f->frames, 40};
	f->profile = (struct profile){.n_samples = 1000,
				      .n_unknown = 40,
				      .rate_hz = 99,
				      .libraries = f->libraries,
				      .functions = f->functions,
				      .stacks = f->stacks,
				      .n_libraries = 3,
				      .n_functions = 4,
				      .n_stacks = 6};
	a->profile = &f->profile;
	f->calls[0] =
	    (struct gpu_call){"cuStreamSynchronize", FIXTURE_STEPS, 1200 * NS_PER_MS, 900 * NS_PER_MS};
	f->calls[1] = (struct gpu_call){"cuMemcpyDtoHAsync_v2", FIXTURE_STEPS, 20 * NS_PER_MS, 0};
	f->gpu = (struct gpu_use){.library = "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
				  .n_launches = 60000,
				  .n_copies = 240,
				  .wait_ns = 1200 * NS_PER_MS,
				  .spin_ns = 900 * NS_PER_MS,
				  .starved_ns = 5 * NS_PER_S,
				  .utilization = NAN,
				  .calls = f->calls,
				  .n_calls = 2};
	a->gpu = &f->gpu;
	f->phases.n = 2;
	f->phases.items[0] = (struct phase_time){"forward", FIXTURE_STEPS, 3 * NS_PER_S};
	f->phases.items[1].n = 1;
	snprintf(f->phases.items[1].name, sizeof(f->phases.items[1].name), "%s", f->name);
	a->phases = &f->phases;
}

static inline void fixture_checkpoints(struct fixture *f)
{
	for (size_t i = 0; i < 2; i++) {
		uint64_t end_ns = f->steps[50 * i + 49].end_ns;

		f->checkpoint_items[i] = (struct checkpoint_item){.begin_ns = end_ns - 300 * NS_PER_MS,
								  .end_ns = end_ns,
								  .stall_ns = 300 * NS_PER_MS,
								  .bytes = UINT64_C(98) << 20,
								  .write_ns = 90 * NS_PER_MS,
								  .fsync_ns = 200 * NS_PER_MS,
								  .writeback_ns = 180 * NS_PER_MS};
	}
	f->checkpoints = (struct checkpoint_report){.items = f->checkpoint_items,
						    .n_items = 2,
						    .n_costs = 2,
						    .cost_ns = 305.0 * NS_PER_MS,
						    .cost_error_ns = 12.0 * NS_PER_MS,
						    .cause_ns = {[CHECKPOINT_COPY] = 10.0 * NS_PER_MS,
								 [CHECKPOINT_WRITE] = 290.0 * NS_PER_MS,
								 [CHECKPOINT_WAIT] = 40.0 * NS_PER_MS,
								 [CHECKPOINT_UNKNOWN] = 5.0 * NS_PER_MS},
						    .interval_steps = 50,
						    .overhead_max = 0.05,
						    .advised_steps = 61,
						    .advised_least = 58,
						    .advised_most = 63,
						    .advised_overhead = 0.049};
	f->analysis.checkpoints = &f->checkpoints;
	f->analysis.restored =
	    (struct analysis_restored){.ns = 1200 * NS_PER_MS, .bytes = UINT64_C(98) << 20};
}

static inline void fixture_predictions(struct fixture *f)
{
	static const double xs[WHAT_IF_AXES][5] = {{0, 0.25, 0.5, 0.75, 1}, {1, 2, 4, 6, 8},
						   {0.5, 1, 2, 4, 8},       {0.5, 1, 2, 4, 8},
						   {0.25, 0.5, 1, 2, 4},    {1, 2, 4, 8, 16}};
	static const double gains[WHAT_IF_AXES][5] = {{1, 1.12, 1.28, 1.44, 1.55}, {0.6, 1, 1.38, 1.42, 1.43},
						      {0.66, 1, 1.31, 1.5, 1.55},  {0.8, 1, 1.1, 1.12, 1.13},
						      {1.5, 1.3, 1, 0.66, 0.4},    {0.5, 0.8, 1, 1.1, 1.1}};
	static const double heres[WHAT_IF_AXES] = {0, 2, 1, 1, 1, 4};
	struct predictions *p = &f->predictions;

	*p = (struct predictions){.fetch_rate = {410, 380, 440},
				  .prep_rate = {900, 860, 950},
				  .device_rate = {720, 700, 735},
				  .storage_bytes_per_s = {46e6, 43e6, 50e6},
				  .memory_bytes_per_s = {NAN, NAN, NAN},
				  .batch_samples = 32,
				  .bytes_per_step = 7.8e6,
				  .recorded_step_s = 0.105,
				  .replayed_step_s = 0.103,
				  .cache_ratio_needed = {0.92, 0.88, 0.97},
				  .workers_needed = {NAN, NAN, NAN},
				  .storage_factor_needed = {5.2, 4.1, 6.9}};
	for (size_t axis = 0; axis < WHAT_IF_AXES; axis++) {
		for (size_t i = 0; i < 5; i++) {
			double gain = gains[axis][i];

			f->points[axis][i] = (struct what_if_point){
			    xs[axis][i], {gain, gain * 0.94, gain * 1.05}, 0.4 / gain, 0.2, 0.35};
		}
		p->curves[axis] = (struct what_if_curve){f->points[axis], 5, heres[axis]};
	}
	f->analysis.predictions = p;
}

static inline void fixture_ranks(struct fixture *f)
{
	for (size_t i = 0; i < 4; i++) {
		f->ranks[i] = (struct analysis_rank){.tgid = (uint32_t)(4242 + 10 * i),
						     .tid = (uint32_t)(4242 + 10 * i),
						     .window_ns = f->analysis.window.observed_ns,
						     .n_steps = FIXTURE_STEPS,
						     .straggler = i == 2};
		memcpy(f->ranks[i].share_ns, f->analysis.share_ns, sizeof(f->ranks[i].share_ns));
	}
	f->analysis.ranks = f->ranks;
	f->analysis.n_ranks = 4;
}

static inline void fixture_segment(struct fixture *f, size_t lane, uint64_t begin_ns, uint64_t length_ns,
				   enum lane_state state)
{
	struct lane *to = &f->lane_items[lane];

	to->segments[to->n_segments++] = (struct lane_segment){begin_ns, begin_ns + length_ns, state};
}

static inline void fixture_lanes(struct fixture *f)
{
	static const struct {
		enum lane_role role;
		const char *name;
	} of[4] = {{LANE_TRAINER, "trainer"},
		   {LANE_WORKER, "worker 1"},
		   {LANE_WORKER, "worker 2"},
		   {LANE_HELPER, "pt_autograd_0"}};

	for (size_t i = 0; i < 4; i++) {
		f->lane_items[i] = (struct lane){.role = of[i].role,
						 .tid = (uint32_t)(4242 + i),
						 .tgid = i == 1 || i == 2 ? (uint32_t)(4242 + i) : 4242,
						 .segments = f->segments[i]};
		snprintf(f->lane_items[i].name, sizeof(f->lane_items[i].name), "%s", of[i].name);
	}
	f->lanes = (struct lanes){.items = f->lane_items,
				  .n_items = 4,
				  .wakes = f->wakes,
				  .waits = f->waits,
				  .levels = f->levels,
				  .gpu_calls = f->gpu_calls};
	for (size_t i = 0; i < FIXTURE_STEPS; i++) {
		const struct analysis_step *step = &f->steps[i];
		uint64_t at_ns = step->begin_ns, wait_ns, worker = 1 + i % 2;

		wait_ns = step->share_ns[SHARE_FETCH_STALL] + step->share_ns[SHARE_PREP_STALL];
		for (size_t k = 1; k <= SHARE_COUNT; k++) {
			size_t share = k % SHARE_COUNT; /* device comes last */

			if (step->share_ns[share])
				fixture_segment(f, 0, at_ns, step->share_ns[share],
						lane_state_of_share((enum analysis_share)share));
			at_ns += step->share_ns[share];
		}
		fixture_segment(f, worker, step->begin_ns, wait_ns * 2 / 3, LANE_FETCH);
		fixture_segment(f, worker, step->begin_ns + wait_ns * 2 / 3, wait_ns / 4, LANE_CPU);
		fixture_segment(f, 3 - worker, step->begin_ns, wait_ns, LANE_IDLE);
		f->waits[f->lanes.n_waits++] = (struct lane_wait){step->begin_ns, step->begin_ns + wait_ns,
								  step->share_ns[SHARE_FETCH_STALL]};
		f->wakes[f->lanes.n_wakes++] = (struct lane_wake){
		    step->begin_ns + wait_ns - 1000, step->begin_ns + wait_ns, (uint32_t)worker, 0};
		f->levels[f->lanes.n_levels++] = (struct lane_level){step->begin_ns + wait_ns / 2, 1 + i % 2};
		f->levels[f->lanes.n_levels++] = (struct lane_level){step->begin_ns + wait_ns, i % 2};
		f->gpu_calls[f->lanes.n_gpu_calls++] =
		    (struct lane_gpu_call){at_ns - 10 * NS_PER_MS, at_ns, 0, "cuStreamSynchronize"};
		f->lane_items[worker].batches = f->batches[worker - 1];
		f->batches[worker - 1][f->lane_items[worker].n_batches++] =
		    (struct lane_batch){step->begin_ns, step->begin_ns + wait_ns * 11 / 12};
	}
	f->analysis.lanes = &f->lanes;
}

/* text: value of all texts that come from outside */
static inline void fixture_make(struct fixture *f, const char *text)
{
	memset(f, 0, sizeof(*f));
	snprintf(f->command, sizeof(f->command), "python3 /home/u/train.py --data %s", text);
	snprintf(f->path, sizeof(f->path), "/data/%s", text);
	snprintf(f->name, sizeof(f->name), "%s", text);
	snprintf(f->frames, sizeof(f->frames), "worker.py:_worker_loop;%s", text);
	fixture_steps(f);
	fixture_job(f);
	fixture_parts(f);
	fixture_checkpoints(f);
	fixture_predictions(f);
	fixture_ranks(f);
	fixture_lanes(f);
}

static inline struct report_source fixture_source(const char *text)
{
	return (struct report_source){.recording = text,
				      .host = text,
				      .kernel = "6.18.44",
				      .machine = "x86_64",
				      .version = "0.1.0",
				      .clocks = {FIXTURE_BEGIN - 2 * NS_PER_S, FIXTURE_BEGIN - NS_PER_S,
						 UINT64_C(1795246121) * NS_PER_S, 40}};
}
