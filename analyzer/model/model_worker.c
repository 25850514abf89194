/* SPDX-License-Identifier: Apache-2.0 */
#include "model_sim.h"

#include "lib/hash.h"

/* Uniform in [0, 1), the same for the same segment in every replay, so that a larger cache holds all that a
 * smaller one does. */
static double lot(size_t i)
{
	uint64_t state = i;

	return (double)(splitmix64(&state) >> 11) * 0x1p-53;
}

static bool missed(const struct model_segment *segment)
{
	return segment->bytes > 0 || segment->latency_ns > 0;
}

static bool reads_something(const struct model_segment *segment)
{
	return missed(segment) || segment->size_bytes > 0;
}

double model_cached_ratio(const struct model_job *job)
{
	size_t n = 0, n_missed = 0;

	for (size_t i = 0; i < job->n_segments; i++) {
		n += reads_something(&job->segments[i]);
		n_missed += missed(&job->segments[i]);
	}
	return n ? 1 - (double)n_missed / (double)n : 1;
}

struct sim_reads sim_reads_init(const struct model_job *job, const struct model_scenario *scenario)
{
	struct sim_reads reads = {.job = job,
				  .scenario = scenario,
				  .storage = job->storage,
				  .storage_state = job->storage.drained ? 0 : -INFINITY,
				  .hit_ratio = model_cached_ratio(job)};
	size_t n_missed = 0;

	for (size_t i = 0; i < job->n_segments; i++) {
		n_missed += missed(&job->segments[i]);
		reads.mean_latency_ns += job->segments[i].latency_ns;
	}
	reads.mean_latency_ns = n_missed ? reads.mean_latency_ns / (double)n_missed : 0;
	reads.storage.bytes_per_s *= scenario->storage_speed;
	return reads;
}

/* Returns true if the group is in memory. A cache as large as the recorded one holds exactly the same groups.
 */
static bool is_cached(const struct sim_reads *reads, size_t i)
{
	bool miss = missed(&reads->job->segments[i]);
	double hit = reads->hit_ratio, rank;

	if (reads->scenario->fetch_free)
		return true;
	if (isnan(reads->scenario->cached_ratio))
		return !miss;
	rank = miss ? hit + lot(i) * (1 - hit) : lot(i) * hit;
	return rank < reads->scenario->cached_ratio;
}

static void enter_compute(struct sim_worker *worker, const struct sim_reads *reads)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];

	worker->phase = SIM_COMPUTE;
	worker->width = fmin(fmax(1, segment->width), fmax(1, reads->job->cores));
	worker->left_ns = segment->compute_ns * reads->scenario->sample_size * reads->scenario->prep_cost;
	if (reads->moved) {
		worker->left_ns *= worker->width;
		worker->width = 1;
	}
}

static double cached_cpu_ns(const struct sim_reads *reads, const struct model_segment *segment)
{
	double ns = reads->job->cached_cpu_ns + segment->size_bytes * reads->job->cached_cpu_ns_per_byte;

	return fmin(ns, segment->fetch_cpu_ns);
}

static void enter_fetch_cpu(struct sim_worker *worker, const struct sim_reads *reads)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];

	worker->phase = SIM_FETCH_CPU;
	worker->left_ns =
	    is_cached(reads, worker->segment) ? cached_cpu_ns(reads, segment) : segment->fetch_cpu_ns;
	worker->left_ns *= reads->scenario->sample_size;
}

static void enter_fetch(struct sim_worker *worker, struct sim_reads *reads, double now_ns)
{
	const struct model_segment *segment = &reads->job->segments[worker->segment];
	double bytes = segment->bytes, latency_ns = segment->latency_ns;

	worker->phase = SIM_FETCH;
	worker->until_ns = now_ns;
	if (!reads_something(segment) || is_cached(reads, worker->segment))
		return;
	if (!missed(segment)) {
		bytes = segment->size_bytes;
		latency_ns = reads->mean_latency_ns;
	}
	bytes *= reads->scenario->sample_size;
	worker->until_ns += latency_ns / reads->scenario->storage_speed +
			    model_storage_wait(&reads->storage, &reads->storage_state, now_ns, bytes);
}

void sim_worker_take(struct sim_worker *worker, struct sim_reads *reads, const struct model_batch *batch,
		     double now_ns)
{
	worker->segment = batch->first_segment;
	worker->segment_end = batch->first_segment + batch->n_segments;
	if (worker->segment < worker->segment_end) {
		enter_compute(worker, reads);
		return;
	}
	/* Nothing to do: the phase ends immediately. */
	worker->phase = SIM_DELAY;
	worker->until_ns = now_ns;
}

bool sim_worker_next(struct sim_worker *worker, struct sim_reads *reads, double now_ns)
{
	switch (worker->phase) {
	case SIM_IDLE: return false;
	case SIM_ABSENT: worker->phase = SIM_IDLE; return false;
	case SIM_COMPUTE:
		worker->phase = SIM_DELAY;
		worker->until_ns = now_ns;
		if (reads->scenario->prep_cost > 0)
			worker->until_ns += reads->job->segments[worker->segment].delay_ns;
		return false;
	case SIM_DELAY:
		if (worker->segment < worker->segment_end) {
			enter_fetch_cpu(worker, reads);
			return false;
		}
		break;
	case SIM_FETCH_CPU: enter_fetch(worker, reads, now_ns); return false;
	case SIM_FETCH:
		if (++worker->segment < worker->segment_end) {
			enter_compute(worker, reads);
			return false;
		}
		break;
	}
	worker->phase = SIM_IDLE;
	return true;
}
