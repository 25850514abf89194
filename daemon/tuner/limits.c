/* SPDX-License-Identifier: Apache-2.0 */
/* Computes each job's limits from the operator's limits, the node's memory and cores, and other jobs. */
#include "round.h"

#include <math.h>

/* Part of the memory limit that caches may take unless the operator sets one: the rest is for the jobs
 * themselves. */
#define CACHE_SHARE 0.75
/* Workers per core unless the operator sets a limit: half of them sleep while they wait for data or for the
 * trainer. */
#define WORKERS_PER_CORE 2.0

const struct tuner_pin *round_pin(const struct tuner_config *config, uint64_t job, enum tuner_knob knob)
{
	const struct tuner_pin *all = NULL;
	uint32_t n = config->n_pins < TUNER_MAX_PINS ? config->n_pins : TUNER_MAX_PINS;

	for (uint32_t i = 0; i < n; i++) {
		if (config->pins[i].knob != knob)
			continue;
		if (config->pins[i].job == job)
			return &config->pins[i];
		if (!config->pins[i].job)
			all = &config->pins[i];
	}
	return all;
}

uint64_t round_value(const struct tuner_job *job, enum tuner_knob knob)
{
	return job->asked[knob] ? job->wanted.value[knob] : job->in_force.value[knob];
}

static double or_zero(double x)
{
	return x >= 0 && x < INFINITY ? x : 0;
}

/* Returns 1 / the number of jobs on this job's dataset: they share its chunks, and a chunk cached for one
 * serves all. */
static double shared_part(const struct tuner_round *round, size_t index)
{
	const struct tuner_job *job = &round->state->jobs[index];
	uint32_t n = 0;

	for (uint32_t i = 0; job->dataset && i < round->state->n_jobs; i++)
		n += round->state->jobs[i].dataset == job->dataset;
	return n > 1 ? 1.0 / n : 1;
}

/* Returns the claimed bytes of chunks in memory; *ret_borrowed is what is beyond the job's claim. */
static double cache_held(const struct tuner_round *round, size_t index, double *ret_borrowed)
{
	const struct job_figures *f = &round->plans[index].now;
	double set = (double)round->state->jobs[index].in_force.value[TUNER_CACHE_BYTES], claimed;

	*ret_borrowed = 0;
	if (isnan(f->cached_bytes))
		return set;
	claimed = fmin(set, f->cached_bytes);
	*ret_borrowed = (f->cached_bytes - claimed) * shared_part(round, index);
	return claimed;
}

/* Returns how much of its claim the job uses. */
static double cache_in_use(const struct tuner_job *job, const struct job_figures *f)
{
	double set = (double)job->in_force.value[TUNER_CACHE_BYTES];

	return isnan(f->cached_bytes) ? set : fmin(set, f->cached_bytes + or_zero(f->need_bytes));
}

/* Computes sums over all jobs. */
void round_make_totals(struct tuner_round *round)
{
	const struct tuner_config *c = round->config;
	double limit = round->node.memory_limit_bytes, headroom = round->node.memory_headroom_bytes;
	double in_use = 0, set = 0, held = 0, borrowed, ceiling, physical = INFINITY;

	for (uint32_t i = 0; i < round->state->n_jobs; i++) {
		/* Borrowed memory can be claimed, and is evicted first under pressure. */
		held += cache_held(round, i, &borrowed) + borrowed;
		in_use += cache_in_use(&round->state->jobs[i], &round->plans[i].now) + borrowed;
		set += (double)round_value(&round->state->jobs[i], TUNER_CACHE_BYTES);
	}
	round->cache_total = c->cache_bytes_max ? (double)c->cache_bytes_max
			     : limit > 0        ? limit * CACHE_SHARE
						: INFINITY;
	ceiling = pressure_ceiling(&round->state->pressure, c, &round->node, held, round->now_ns);
	round->cache_hard = round->cache_total <= ceiling;
	round->cache_total = fmin(round->cache_total, ceiling);
	if (headroom >= 0)
		physical = fmax(in_use + headroom - pressure_reserve(c, &round->node), 0);
	round->cache_growth = fmin(round->cache_total, fmax(physical, set));
	round->workers_total = c->workers_max           ? c->workers_max
			       : round->node.cores >= 1 ? ceil(round->node.cores * WORKERS_PER_CORE)
							: INFINITY;
	if (round->workers_total < round->state->n_jobs)
		round->workers_total = round->state->n_jobs; /* each job needs one worker */
}

/* Returns the limits of a job that runs without other jobs. */
static struct memory_space space_alone(const struct tuner_round *round, size_t index)
{
	const struct tuner_config *c = round->config;
	const struct job_figures *f = &round->plans[index].now;
	double own = or_zero(f->daemon_busy) +
		     fmax(or_zero(f->client_busy), or_zero(f->rate) * or_zero(f->client_cpu_s));
	double cores = round->node.cores_idle >= 0 ? round->node.cores_idle + own : round->node.cores;

	/* The scheduler is fair: a job can reclaim the CPU time that others use beyond an equal share. */
	if (round->node.cores > 0)
		cores = fmin(fmax(cores, round->node.cores / round->state->n_jobs), round->node.cores);
	/* Pressure never takes memory that sessions need; an operator's limit may. */
	return (struct memory_space){
	    .cache_bytes =
		round->cache_hard ? round->cache_growth : fmax(round->cache_growth, or_zero(f->need_bytes)),
	    .prefetch = c->prefetch_chunks_max,
	    .daemon_workers = (uint64_t)fmin(c->daemon_workers_max, round->workers_total),
	    .client_workers = (uint64_t)fmin(c->client_workers_max, round->workers_total - 1),
	    .cores = cores > 0 ? fmax(cores, 1) : NAN};
}

static double gain_of(const struct tuner_round *round, size_t i, const struct memory_space *space,
		      enum tuner_knob knob, double fair)
{
	const struct tuner_job *job = &round->state->jobs[i];
	struct tuner_knobs with = job->model, without = with;
	double a, b;

	if ((double)with.value[knob] <= fair)
		return 0;
	without.value[knob] = (uint64_t)fair;
	a = target_rate(job, &round->plans[i].now, space, &with);
	b = target_rate(job, &round->plans[i].now, space, &without);
	return a > b && b > 0 ? a / b - 1 : 0;
}

static struct claim claim_of(const struct tuner_round *round, size_t i, enum tuner_knob knob, double floor,
			     double fair)
{
	const struct tuner_job *job = &round->state->jobs[i];
	const struct tuner_pin *pin = round_pin(round->config, job->job, knob);
	struct claim c = {.floor = floor, .want = (double)job->model.value[knob]};

	if (pin)
		c.want = (double)pin->value;
	else if (!(job->tunable & 1u << knob))
		c.want = (double)job->in_force.value[knob];
	if (pin || !(job->tunable & 1u << knob))
		c.floor = fmax(floor, c.want);
	else
		c.gain = gain_of(round, i, &round->plans[i].space, knob, fair);
	return c;
}

static void share_cache(struct tuner_round *round)
{
	uint32_t n = round->state->n_jobs;
	struct claim claims[TUNER_MAX_JOBS];
	double sum = 0;

	if (n < 2 || isinf(round->cache_total))
		return;
	for (uint32_t i = 0; i < n; i++) {
		double need = or_zero(round->plans[i].now.need_bytes), part = shared_part(round, i);

		claims[i] = claim_of(round, i, TUNER_CACHE_BYTES, need, round->cache_total / n);
		if (part < 1)
			claims[i].want = fmax(need, need + (claims[i].want - need) * part);
	}
	share_out(claims, n, round->cache_total);
	for (uint32_t i = 0; i < n; i++)
		sum += fmax(claims[i].given, (double)round_value(&round->state->jobs[i], TUNER_CACHE_BYTES));
	for (uint32_t i = 0; i < n; i++) {
		double now = (double)round_value(&round->state->jobs[i], TUNER_CACHE_BYTES);

		round->plans[i].space.cache_bytes =
		    floor(sum <= round->cache_total ? fmax(claims[i].given, now) : claims[i].given);
	}
}

static void share_workers(struct tuner_round *round)
{
	size_t n = round->state->n_jobs;
	struct claim claims[2 * TUNER_MAX_JOBS];
	double sum = 0;

	if (n < 2 || isinf(round->workers_total))
		return;
	for (size_t i = 0; i < n; i++) {
		double fair = floor(round->workers_total / (2.0 * (double)n));

		claims[2 * i] = claim_of(round, i, TUNER_DAEMON_WORKERS, 1, fmax(fair, 1));
		claims[2 * i + 1] = claim_of(round, i, TUNER_CLIENT_WORKERS, 0, fair);
	}
	share_out(claims, 2 * n, round->workers_total);
	for (size_t i = 0; i < 2 * n; i++) {
		claims[i].given = floor(claims[i].given + 1e-6);
		sum += claims[i].given;
	}
	/* Hands out the workers that rounding left over, one by one. */
	for (size_t i = 0; i < 2 * n && sum + 1 <= round->workers_total; i++) {
		if (claims[i].given + 1 > claims[i].want)
			continue;
		claims[i].given++;
		sum++;
	}
	for (size_t i = 0; i < n; i++) {
		struct memory_space *space = &round->plans[i].space;

		space->daemon_workers = (uint64_t)fmin((double)space->daemon_workers, claims[2 * i].given);
		space->client_workers =
		    (uint64_t)fmin((double)space->client_workers, claims[2 * i + 1].given);
	}
}

static void ask_model(struct tuner_job *job, const struct knob_plan *p)
{
	struct job_figures f = p->now;

	if (job->phase == TUNER_PHASE_SETTLED)
		job_envelope(job, &f);
	target_knobs(job, &f, &p->space, &job->model);
}

void round_make_spaces(struct tuner_round *round)
{
	struct tuner_state *s = round->state;

	for (uint32_t i = 0; i < s->n_jobs; i++) {
		struct knob_plan *p = &round->plans[i];

		p->space = space_alone(round, i);
		if (p->n && s->jobs[i].phase != TUNER_PHASE_IDLE) {
			if (p->n > 1)
				job_envelope_add(&s->jobs[i], &p->now);
			ask_model(&s->jobs[i], p);
		} else if (!s->jobs[i].model.value[TUNER_DAEMON_WORKERS]) {
			s->jobs[i].model = s->jobs[i].in_force;
		}
	}
	share_cache(round);
	share_workers(round);
	/* Asks the model again, within the limits that other jobs leave: a smaller cache may need more
	 * prefetching. */
	for (uint32_t i = 0; i < s->n_jobs && s->n_jobs > 1; i++)
		if (round->plans[i].n && s->jobs[i].phase != TUNER_PHASE_IDLE)
			ask_model(&s->jobs[i], &round->plans[i]);
}
