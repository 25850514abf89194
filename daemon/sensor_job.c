/* SPDX-License-Identifier: Apache-2.0 */
#include "sensor_job.h"

#include <math.h>

#include "lib/clock.h"

static uint64_t load(const _Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* What the session's client says now. */
static struct session_sensed session_look(const struct session *q, uint64_t now_ns)
{
	const struct ring_control *control = q->control;
	const struct ring_work *work = &control->work;
	struct job_counters waits = {0};

	session_add_waits(q, now_ns, &waits);
	return (struct session_sensed){
	    .known = true,
	    .consumed = atomic_load_explicit(&control->consumed, memory_order_relaxed),
	    .wait_ns = waits.wait_fetch_ns + waits.wait_prep_ns,
	    .fetch_ns = waits.wait_fetch_ns,
	    .n_samples = load(&work->n_samples),
	    .next_ns = load(&work->next_ns),
	    .handoff_ns = load(&work->handoff_ns),
	    .n_handoffs = load(&work->n_handoffs),
	    .cpu_ns = load(&work->cpu_ns),
	    .busy_ns = load(&work->busy_ns),
	    .n_worked = load(&work->n_worked),
	};
}

/* A client may write anything, and a wait that is not over yet may be counted elsewhere in the end. */
static uint64_t grown(uint64_t before, uint64_t now)
{
	return now > before && now - before < UINT64_MAX / 2 ? now - before : 0;
}

void sensed_look(struct session *q, uint64_t now_ns)
{
	struct session_sensed was = q->sensed;
	const struct session_sensed is = session_look(q, now_ns);
	uint32_t stride = q->request.stride ? q->request.stride : 1, batches = is.consumed - was.consumed;
	struct job_taken *taken = &q->job->taken;

	q->sensed = is;
	if (batches > is.consumed) /* it never goes back */
		return;
	/* What Python work cost is told since the session was opened first, maybe of another daemon. */
	if (!was.known && is.n_samples > (uint64_t)is.consumed * q->batch) {
		was = is;
		was.wait_ns = was.fetch_ns = 0;
	}
	taken->batches += batches;
	taken->samples += is.n_samples ? grown(was.n_samples, is.n_samples) : (uint64_t)batches * q->batch;
	taken->wait_ns += grown(was.wait_ns, is.wait_ns) / stride;
	taken->fetch_ns += grown(was.fetch_ns, is.fetch_ns) / stride;
	taken->next_ns += grown(was.next_ns, is.next_ns) / stride;
	taken->handoff_ns += grown(was.handoff_ns, is.handoff_ns);
	taken->n_handed_samples += grown(was.n_handoffs, is.n_handoffs) * q->batch;
	taken->work_cpu_ns += grown(was.cpu_ns, is.cpu_ns);
	taken->work_busy_ns += grown(was.busy_ns, is.busy_ns);
	taken->n_worked += grown(was.n_worked, is.n_worked);
}

const struct sensed_reading *sensed_reading_at(const struct sensed_job *sensed, uint64_t age)
{
	if (age >= sensed->n_readings || age >= SENSED_READINGS)
		return NULL;
	return &sensed->readings[(sensed->n_readings - 1 - age) % SENSED_READINGS];
}

void sensed_read(struct sensed_job *sensed, const struct server *server, struct job *job, uint64_t now_ns)
{
	struct sensed_reading reading = {.at_ns = now_ns};

	server_job_counters(server, job, &reading.counters);
	for (struct session *q = server->sessions; q; q = q->next) {
		if (q->job == job)
			sensed_look(q, now_ns);
	}
	reading.taken = job->taken;
	sensed->readings[sensed->n_readings++ % SENSED_READINGS] = reading;
}

/* ---- what is, rather than what happened ---------------------------------------------------------------- */

static uint64_t dataset_key(const struct served_dataset *d)
{
	uint64_t key = d->identity.directory_ino * UINT64_C(0x9e3779b97f4a7c15);

	key = (key ^ d->identity.directory_dev) * UINT64_C(0x9e3779b97f4a7c15);
	return (key ^ d->info.version) | 1;
}

static void add_dataset(struct stall_sample *sample, const struct served_dataset *d)
{
	uint64_t key = dataset_key(d);

	if (sample->dataset == key)
		return;
	/* A job of two datasets (training, validation): the figures of the one that is larger. */
	if (sample->dataset && sample->dataset_bytes >= (double)d->all_bytes)
		return;
	sample->dataset = key;
	sample->dataset_bytes = (double)d->all_bytes;
	sample->cached_bytes = (double)d->held_bytes;
	sample->chunk_bytes = (double)d->all_bytes / (double)d->info.n_chunks;
	sample->samples_per_chunk = (double)d->info.n_samples / (double)d->info.n_chunks;
}

static void add_session_state(struct stall_sample *sample, const struct session *q)
{
	const struct served_dataset *d = q->dataset;
	const struct ring_work *work = &q->control->work;
	uint32_t policy = atomic_load_explicit(&work->policy, memory_order_relaxed);

	add_dataset(sample, d);
	sample->need_bytes += (double)q->cost_bytes + (double)q->need_bytes + (double)d->copy_bytes;
	sample->ready_samples += (double)q->n_slots * q->batch;
	if (q->batch > sample->batch)
		sample->batch = q->batch;
	if (q->request.window_chunks > sample->window_chunks)
		sample->window_chunks = q->request.window_chunks;
	if (policy == RING_WORK_AUTO)
		sample->tunable |= 1u << TUNER_CLIENT_WORKERS;
	if (load(&work->worker_bytes) > 0)
		sample->client_worker_bytes = (double)load(&work->worker_bytes);
}

/* The knobs in force. What a pin or the tuner asked for may be more than the operator allows by now, or less
 * than the sessions need. */
static void knobs_fill(struct stall_sample *sample, const struct server *server, const struct job *job)
{
	uint64_t *value = sample->knobs.value;
	struct job_knobs in_force;

	serve_job_knobs(server, job, &in_force);
	value[TUNER_CACHE_BYTES] = in_force.cache_bytes;
	value[TUNER_PREFETCH_CHUNKS] = in_force.prefetch_chunks;
	value[TUNER_DAEMON_WORKERS] = in_force.workers;
	value[TUNER_CLIENT_WORKERS] = server_job_client_workers(server, job);
}

static void state_fill(struct stall_sample *sample, const struct server *server, const struct job *job)
{
	sample->tunable = 1u << TUNER_CACHE_BYTES | 1u << TUNER_PREFETCH_CHUNKS | 1u << TUNER_DAEMON_WORKERS;
	knobs_fill(sample, server, job);
	if (!job->n_sessions)
		return;
	sample->need_bytes = 0;
	sample->ready_samples = 0;
	for (const struct session *q = server->sessions; q; q = q->next) {
		if (q->job == job)
			add_session_state(sample, q);
	}
}

struct stall_sample sensed_sample(const struct sensed_job *sensed, const struct server *server,
				  const struct job *job)
{
	const struct sensed_reading *now = sensed_reading_at(sensed, 0);
	const struct sensed_reading *before = sensed_reading_at(sensed, 1);
	struct stall_sample sample = stall_sample_unknown();

	sample.job = job->id;
	state_fill(&sample, server, job);
	if (!now || !before || now->at_ns <= before->at_ns)
		return sample;
	sample.at_ns = now->at_ns;
	sample.covered_s = (double)(now->at_ns - before->at_ns) / (double)NS_PER_S;
	sample.run_queue_ratio = sensed->queue_ratio;
	sample.samples_per_s = (double)(now->taken.samples - before->taken.samples) / sample.covered_s;
	sample.n_trainers = job->n_sessions > 0;
	sensed_storage(sensed, &sample);
	sensed_work(before, now, &sample);
	sensed_shares(sensed, before, now, &sample);
	sensed_rates(&sample, (double)pool_workers(server->cache.pool));
	return sample;
}
