/* SPDX-License-Identifier: Apache-2.0 */
#include "round.h"

#include <math.h>
#include <string.h>
#include <stdio.h>

/* Part of the memory limit that caches may take unless the operator sets one: the rest is for the jobs
 * themselves. */
#define CACHE_SHARE 0.75
/* Workers per core unless the operator sets a limit: half of them sleep while they wait for data or for the
 * trainer. */
#define WORKERS_PER_CORE 2.0

/* No sample for this long is more than a hiccup of the sensor. */
#define BLIND_NS (5 * SECOND_NS)
/* A job that takes no samples for this long releases the resources that it can get again at once. */
#define IDLE_NS (30 * SECOND_NS)
/* Consecutive different samples that count as a new phase: one may be a hiccup, two a checkpoint. */
#define DIFFERS_MIN 3
/* Seconds over which the mean deviation of waiting is taken, so that one second changes it little. */
#define STRAY_SAMPLES 8
/* Time after the start of a jump in which no other phase is detected, because the jump itself changes
 * figures. */
#define SETTLED_MIN_NS (4 * SECOND_NS)
/* If two changes of phase lie within this time, the cause is not the job but its surroundings (such as a
 * neighbour's bursts). */
#define UNSTEADY_NS (90 * SECOND_NS)
/* Storage was clearly slower than now if its bandwidth was below this fraction of the present one. */
#define NOISE 0.75
/* Bandwidth that differs by less than this ratio is that of the same storage. */
#define SAME_STORAGE 1.3

/* Ratio beyond which a figure counts as different. Wider for demand, which is noisy after a long wait. */
#define DIFFERS 1.35
/* Waiting has grown if it rose by more than this share of the time and by more than STRAYS deviations. */
#define WAIT_DIFFERS 0.10
/* Minimum growth of waiting, in multiples of its usual deviation, which exists because windows find more or
 * less in memory. Below 3, because a change adds to the deviation that it is compared with, and must still be
 * noticed. */
#define STRAYS 2.5
/* Ratio for bandwidth, which also depends on the files that are read. */
#define BANDWIDTH_DIFFERS 1.6
#define READING_MIN       0.1 /* minimum share of time spent reading from which to judge storage */

/* A job without samples for this long is gone, even if tuner_forget() was not called. */
#define FORGET_NS (60 * SECOND_NS)
/* Starting processes takes seconds. A knob not applied after this time counts as not applicable. */
#define APPLY_NS (6 * SECOND_NS)
/* Time for which a value that was not applied is not requested again. */
#define REFUSED_NS (60 * SECOND_NS)
/* A pause of this length (suspend, a stopped daemon) makes earlier measurements invalid. */
#define PAUSE_NS (20 * SECOND_NS)

static void shift(uint64_t *at_ns, uint64_t by_ns)
{
	if (*at_ns)
		*at_ns = *at_ns > by_ns ? *at_ns - by_ns : 1;
}

static void shift_job(struct tuner_job *job, uint64_t by_ns)
{
	uint64_t *const times[] = {&job->first_ns,      &job->last_ns,         &job->phase_ns,
				   &job->jump_ns,       &job->changed_ns,      &job->surplus_ns,
				   &job->stall_ns,      &job->idle_ns,         &job->envelope_ns,
				   &job->flips_ns[0],   &job->flips_ns[1],     &job->flips_ns[2],
				   &job->settled.at_ns, &job->settled.from_ns, &job->took_ns};

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		shift(times[i], by_ns);
	for (size_t i = 0; i < SEEN_MAX; i++) {
		shift(&job->seen[i].at_ns, by_ns);
		shift(&job->seen[i].from_ns, by_ns);
	}
	for (size_t i = 0; i < TUNER_N_KNOBS; i++) {
		shift(&job->asked_ns[i], by_ns);
		shift(&job->refused_until_ns[i], by_ns);
		shift(&job->changes[i].at_ns, by_ns);
		shift(&job->lessons[i].up_until_ns, by_ns);
		shift(&job->lessons[i].down_until_ns, by_ns);
	}
}

/* If the clock is set back, sets back all remembered times too, so that no deadline is suddenly far away. */
static void follow_clock(struct tuner_round *round)
{
	struct tuner_state *s = round->state;

	if (s->last_now_ns && round->now_ns < s->last_now_ns) {
		uint64_t by_ns = s->last_now_ns - round->now_ns;

		for (uint32_t i = 0; i < s->n_jobs; i++)
			shift_job(&s->jobs[i], by_ns);
		shift(&s->pressure.cut_ns, by_ns);
		shift(&s->pressure.clear_ns, by_ns);
		shift(&s->pressure.raised_ns, by_ns);
	}
	for (uint32_t i = 0; i < s->n_jobs && round->now_ns > s->last_now_ns + PAUSE_NS; i++) {
		s->jobs[i].phase_ns = round->now_ns;
		s->jobs[i].last_ns = round->now_ns;
		s->jobs[i].stall_ns = s->jobs[i].surplus_ns = 0;
	}
	s->last_now_ns = round->now_ns;
}

void tuner_forget(struct tuner_state *state, uint64_t job)
{
	for (uint32_t i = 0; i < state->n_jobs; i++) {
		if (state->jobs[i].job != job)
			continue;
		memmove(&state->jobs[i], &state->jobs[i + 1],
			(state->n_jobs - i - 1) * sizeof(state->jobs[0]));
		state->n_jobs--;
		return;
	}
}

static void not_applied(struct tuner_round *round, struct tuner_job *job, enum tuner_knob knob)
{
	char text[TUNER_REASON_BYTES];

	job->refused_until_ns[knob] = round->now_ns + REFUSED_NS;
	snprintf(text, sizeof(text), "%s is still %llu, not %llu: the change was not applied",
		 tuner_knob_name(knob), (unsigned long long)job->in_force.value[knob],
		 (unsigned long long)job->wanted.value[knob]);
	round_verdict(round, job, knob, TUNER_NOT_APPLIED, NULL, text);
}

/* Returns the time since which the knob could have been applied; 0: not yet. Clients follow at their next
 * batch. */
static uint64_t could_follow_ns(const struct tuner_job *job, enum tuner_knob knob)
{
	return knob == TUNER_CLIENT_WORKERS ? job->took_ns : job->asked_ns[knob];
}

static void take_knobs(struct tuner_round *round, struct tuner_job *job, const struct tuner_knobs *knobs,
		       bool takes, bool first)
{
	if (takes && !job->took_ns)
		job->took_ns = round->now_ns;
	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		uint64_t was = job->in_force.value[k], is = knobs->value[k];
		uint64_t since_ns = could_follow_ns(job, (enum tuner_knob)k);

		job->in_force.value[k] = is;
		if (job->asked[k]) {
			if (is == job->wanted.value[k] || (is != was && !first)) {
				job->asked[k] = false; /* the knob was applied, fully or as far as possible */
				job->changed_ns = round->now_ns;
			} else if (since_ns && round->now_ns > since_ns + APPLY_NS) {
				not_applied(round, job, (enum tuner_knob)k);
				job->asked[k] = false;
			}
		} else if (is != was && !first) {
			job->changed_ns = round->now_ns; /* the knob was changed from outside the tuner */
			if (job->changes[k].open)
				round_verdict(round, job, (enum tuner_knob)k, TUNER_UNCLEAR, NULL,
					      "the knob was changed from outside the tuner in the meantime");
		}
		if (!job->asked[k])
			job->wanted.value[k] = is;
	}
}

static const struct job_figures *newest(const struct tuner_job *job)
{
	return &job->seen[(job->n_seen - 1) % SEEN_MAX];
}

/* ---- Samples into their jobs, and clocks that step ---- */
static void round_take_samples(struct tuner_round *round, const struct stall_sample *samples, size_t n)
{
	struct tuner_state *s = round->state;

	follow_clock(round);
	for (size_t i = 0; i < n; i++) {
		struct tuner_job *job = state_see(s, &samples[i], round->now_ns);
		bool first;

		if (!job) {
			round->ret->n_samples_refused++;
			continue;
		}
		first = !job->last_ns;
		job->last_ns = round->now_ns;
		job->dataset = samples[i].dataset;
		job->tunable = samples[i].tunable;
		job->n_trainers = samples[i].n_trainers;
		take_knobs(round, job, &samples[i].knobs, newest(job)->rate > 0, first);
	}
	for (uint32_t i = s->n_jobs; i-- > 0;)
		if (round->now_ns > s->jobs[i].last_ns + FORGET_NS)
			tuner_forget(s, s->jobs[i].job);
}

static bool is_unsteady(const struct tuner_job *job, uint64_t now_ns)
{
	return job->flips_ns[0] && now_ns < job->flips_ns[0] + UNSTEADY_NS;
}

static void start_jump(struct tuner_job *job, uint64_t from_ns, uint64_t now_ns)
{
	job->phase = TUNER_PHASE_JUMPING;
	job->phase_ns = from_ns;
	job->jump_ns = now_ns;
	job->n_jumps = 0;
	job->n_differs = 0;
	job->wait_stray = 0;
	job->stall_ns = job->surplus_ns = 0;
}

/* Returns true if the storage is the same, though the job changed, so that its learnt depth is still
 * valid. */
static bool is_same_storage(const struct tuner_job *job)
{
	double now = newest(job)->bandwidth, then = job->settled.bandwidth;

	return now > then / SAME_STORAGE && now < then * SAME_STORAGE;
}

static void job_envelope_clear(struct tuner_job *job)
{
	memset(job->worst_bandwidth, 0, sizeof(job->worst_bandwidth));
	memset(job->worst_latency, 0, sizeof(job->worst_latency));
}

static void change_phase(struct tuner_round *round, struct tuner_job *job)
{
	uint64_t now_ns = round->now_ns;
	bool steady = !is_unsteady(job, now_ns);

	job->flips_ns[2] = job->flips_ns[1];
	job->flips_ns[1] = job->flips_ns[0];
	job->flips_ns[0] = now_ns;
	job->n_differs = 0;
	for (int k = 0; k < TUNER_N_KNOBS; k++)
		round_verdict(round, job, (enum tuner_knob)k, TUNER_UNCLEAR, NULL, "the job itself changed");
	if (!steady) {
		/* The surroundings vary: the job is sized for the worst case (job_envelope), one knob at a
		 * time. */
		job->settled = *newest(job);
		return;
	}
	memset(job->lessons, 0,
	       sizeof(job->lessons)); /* lessons of the old phase are not valid in the new one */
	if (!is_same_storage(job))
		job->full_bandwidth = 0;
	job_envelope_clear(job);
	/* The first second that differed belongs partly to the phase before. */
	start_jump(job, now_ns - (DIFFERS_MIN - 1) * SECOND_NS - SECOND_NS / 2, now_ns);
}

static bool other(double now, double then, double ratio)
{
	return now > 0 && then > 0 && (now > then * ratio || now < then / ratio);
}

/* Returns true if the newest sample differs so much from the settled figures that the model has to be asked
 * again. */
static bool job_differs(const struct tuner_job *job, const struct job_figures *now)
{
	const struct job_figures *then = &job->settled;
	double demand = now->busy >= BUSY_MIN ? now->rate / now->busy : now->demand;
	double ratio = DIFFERS + (now->busy > 0 ? fmin(0.1 / now->busy, 1) * 0.5 : 0.5);

	/* Less waiting is the effect of a filling cache, and does not begin another phase. */
	if (now->wait > then->wait + fmax(WAIT_DIFFERS, STRAYS * job->wait_stray))
		return true;
	/* The CPU time that decoded copies save, or cost while they are made, does not make another phase
	 * either. */
	bool decoded_cache = now->decoded_bytes > 0 || then->decoded_bytes > 0;

	return other(demand, then->demand, ratio) ||
	       (!decoded_cache && other(now->daemon_cpu_s, then->daemon_cpu_s, DIFFERS)) ||
	       other(now->client_cpu_s, then->client_cpu_s, DIFFERS) ||
	       (now->reading > READING_MIN && other(now->bandwidth, then->bandwidth, BANDWIDTH_DIFFERS));
}

static void watch(struct tuner_round *round, struct tuner_job *job)
{
	struct job_figures now;
	double unreachable;

	/* While decoded copies are made, everything is slower; afterwards it is faster. */
	if (job->changes[TUNER_DECODED_BYTES].open)
		return;
	if (newest(job)->from_ns < job->changed_ns || newest(job)->from_ns < job->settled.at_ns)
		return;
	if (newest(job)->wait < job->settled.wait)
		job->settled.wait += (newest(job)->wait - job->settled.wait) / 4;
	/* A change we made is not a new phase: it becomes the baseline. */
	if (job->settled.at_ns < job->changed_ns) {
		if (job_estimate(job, job->changed_ns, &now) < 2)
			return;
		job->settled.wait = now.wait; /* demand and storage do not change because of a knob */
		job->settled.at_ns = now.at_ns;
		return;
	}
	job->n_differs = job_differs(job, newest(job)) ? job->n_differs + 1 : 0;
	unreachable = fabs(newest(job)->wait - job->settled.wait);
	if (unreachable >= 0)
		job->wait_stray += (unreachable - job->wait_stray) / STRAY_SAMPLES;
	if (job->n_differs >= DIFFERS_MIN && round->now_ns > job->jump_ns + SETTLED_MIN_NS)
		change_phase(round, job);
}

static void watch_idle(struct tuner_round *round, struct tuner_job *job)
{
	if (newest(job)->rate > 0) {
		job->idle_ns = 0;
		if (job->phase == TUNER_PHASE_IDLE)
			start_jump(job, newest(job)->from_ns, round->now_ns);
		return;
	}
	if (!job->idle_ns)
		job->idle_ns = round->now_ns;
	if (round->now_ns >= job->idle_ns + IDLE_NS)
		job->phase = TUNER_PHASE_IDLE;
}

/* ---- The job's phase: new, jumping to the model's knobs, settled, idle, or blind ---- */
static void round_update_phase(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	if (!job->n_seen || round->now_ns > newest(job)->at_ns + BLIND_NS) {
		if (job->phase != TUNER_PHASE_NEW)
			job->phase = TUNER_PHASE_BLIND;
		return;
	}
	if (job->phase == TUNER_PHASE_BLIND)
		start_jump(job, newest(job)->from_ns, round->now_ns);
	watch_idle(round, job);
	if (job->phase == TUNER_PHASE_IDLE)
		return;
	if (job->phase == TUNER_PHASE_NEW && newest(job)->rate > 0)
		start_jump(job, newest(job)->from_ns, round->now_ns);
	if (job->phase == TUNER_PHASE_SETTLED && newest(job)->at_ns + SECOND_NS / 2 > round->now_ns)
		watch(round, job);
}

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

/* ---- Each job's limits, from the operator's limits, the node's memory and cores, and other jobs ---- */
/* Computes sums over all jobs. */
static void round_make_totals(struct tuner_round *round)
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

/* Tracks the worst storage of the last minute. A settled job is sized for it, so that knobs do not follow
 * an intermittent neighbour. */
static void job_envelope_add(struct tuner_job *job, const struct job_figures *f)
{
	uint32_t i;

	if (!job->envelope_ns || f->at_ns < job->envelope_ns || f->at_ns - job->envelope_ns >= ENVELOPE_NS) {
		job->envelope_ns = f->at_ns;
		job->envelope_at = (job->envelope_at + 1) % N_ENVELOPE;
		job->worst_bandwidth[job->envelope_at] = 0;
		job->worst_latency[job->envelope_at] = 0;
	}
	i = job->envelope_at;
	if (f->bandwidth > 0 && (job->worst_bandwidth[i] <= 0 || f->bandwidth < job->worst_bandwidth[i]))
		job->worst_bandwidth[i] = f->bandwidth;
	if (f->latency_s > job->worst_latency[i])
		job->worst_latency[i] = f->latency_s;
}

/* Replaces the present figures of storage by the worst ones of the last minute, if those are clearly worse.
 */
static void job_envelope(const struct tuner_job *job, struct job_figures *f)
{
	double bandwidth = f->bandwidth, latency = 0;

	for (uint32_t i = 0; i < N_ENVELOPE; i++) {
		if (job->worst_bandwidth[i] > 0 && job->worst_bandwidth[i] < bandwidth)
			bandwidth = job->worst_bandwidth[i];
		latency = fmax(latency, job->worst_latency[i]);
	}
	if (!(bandwidth < f->bandwidth * NOISE))
		return;
	f->bandwidth = bandwidth;
	if (latency > f->latency_s)
		f->latency_s = latency;
	if (f->latency_p95_s < f->latency_s)
		f->latency_p95_s = f->latency_s;
}

static void ask_model(struct tuner_job *job, const struct knob_plan *p)
{
	struct job_figures f = p->now;

	if (job->phase == TUNER_PHASE_SETTLED)
		job_envelope(job, &f);
	target_knobs(job, &f, &p->space, &job->model);
}

static void round_make_spaces(struct tuner_round *round)
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

size_t tuner_state_bytes(void)
{
	return sizeof(struct tuner_state);
}

bool tuner_state_is_sane(const struct tuner_state *state)
{
	return state->n_jobs <= TUNER_MAX_JOBS;
}

static double known(double x)
{
	return x >= 0 && x < INFINITY ? x : NAN;
}

/* Returns the node's figures without implausible ones. */
static struct stall_node clean_node(const struct stall_node *node)
{
	struct stall_node n = node ? *node : stall_node_unknown();

	n.memory_some_avg10 = known(n.memory_some_avg10);
	n.memory_full_avg10 = known(n.memory_full_avg10);
	n.memory_some_now = known(n.memory_some_now);
	n.memory_limit_bytes = known(n.memory_limit_bytes);
	n.memory_headroom_bytes = known(n.memory_headroom_bytes);
	n.memory_free_bytes = known(n.memory_free_bytes);
	n.cores = known(n.cores);
	n.cores_idle = known(n.cores_idle);
	if (!(n.oom_kills > 0 && n.oom_kills < INFINITY))
		n.oom_kills = 0;
	return n;
}

/* Returns a lower bound on the demand of a job that only waits, so that its demand cannot be measured. NAN
 * otherwise. */
static double demand_least(const struct job_figures *f, uint32_t n)
{
	return n >= ESTIMATE_SAMPLES && f->rate > 0 && f->busy < BUSY_MIN ? f->rate / BUSY_MIN : NAN;
}

static void plan_begin(struct knob_plan *plan, const struct tuner_job *job)
{
	plan->n = job_estimate(job, job->changed_ns, &plan->now);
	plan->demand = plan->now.demand;
	if (isnan(plan->demand))
		plan->now.demand = demand_least(&plan->now, plan->n);
}

void tuner_decide(const struct tuner_config *config, struct tuner_state *state, const struct stall_node *node,
		  const struct stall_sample *samples, size_t n_samples, uint64_t now_ns,
		  struct tuner_result *ret)
{
	struct tuner_round round = {
	    .config = config, .state = state, .node = clean_node(node), .now_ns = now_ns, .ret = ret};

	ret->n_decisions = ret->n_verdicts = ret->n_views = 0;
	ret->n_samples_refused = 0;
	round_take_samples(&round, samples, n_samples);
	for (uint32_t i = 0; i < state->n_jobs; i++) {
		round_update_phase(&round, i);
		plan_begin(&round.plans[i], &state->jobs[i]);
	}
	round_make_totals(&round);
	/* A verdict may teach something about storage, which changes targets: so judge first, then ask the
	 * model. */
	for (uint32_t i = 0; i < state->n_jobs; i++)
		round_judge(&round, i);
	round_make_spaces(&round);
	round_apply(&round);
}
