/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optional changes. A jumping job gets the model's values, several knobs at once. A settled job gets the one
 * knob that a stall needs, or less of one that is too high. An idle job returns resources.
 */
#include "round.h"

#include <math.h>
#include <stdio.h>

#define JUMPS_MAX 3               /* maximum number of jumps: the model's first values, and two corrections */
#define JUMP_NS   (9 * SECOND_NS) /* time after which the job counts as settled in any case */
/* Minimum stall for a change, as a share of the time, and its minimum duration. Shorter ones are noise or
 * a checkpoint. */
#define STALL    0.03
#define STALL_NS (3 * SECOND_NS)
/* A surplus has to last twice as long, because giving back does not end a wait. */
#define SURPLUS_NS (6 * SECOND_NS)
/* Waits of one kind below this share of the time are too short for a knob to end. */
#define FELT 0.01
/* A change must promise a rate this many times as high: the model aims at no more (AS_GOOD of target.c). */
#define WORTH 1.02
/* Minimum stall, as a share of the time, to try one knob although the model predicts no gain. */
#define STALL_TRY   0.06
#define FILLED      0.9  /* a cache has shown its effect once it has this fraction of its target */
#define LESS        0.95 /* a model that predicts less than this fraction of the rate is wrong */
#define UNEXPLAINED 1.10 /* a wait is unexplained if the model expects this many times the rate */
/* Differences that are not worth a change: 3 % of the cache upwards, a fifth of it downwards (dropped chunks
 * take an epoch to come back), a fifth of the depth. */
#define CACHE_SLACK      0.03
#define CACHE_SLACK_DOWN 0.20
#define DEPTH_SLACK      0.20

static bool differs(enum tuner_knob knob, uint64_t now, uint64_t want, double unit)
{
	double difference = fabs((double)want - (double)now);

	switch (knob) {
	case TUNER_CACHE_BYTES:
		return difference >
		       fmax((want < now ? CACHE_SLACK_DOWN : CACHE_SLACK) * (double)now, 2 * unit);
	case TUNER_PREFETCH_CHUNKS: return difference > DEPTH_SLACK * (double)now;
	case TUNER_DAEMON_WORKERS:
	case TUNER_CLIENT_WORKERS:
	case TUNER_DECODED_BYTES: return now != want;
	}
	return false;
}

/* Returns true if the tuner may set the knob to `want` of its own accord. */
static bool may_turn(const struct tuner_round *round, const struct tuner_job *job, enum tuner_knob knob,
		     uint64_t want)
{
	const struct lesson *l = &job->lessons[knob];
	uint64_t now = round_value(job, knob);

	if (!(job->tunable & 1u << knob) || job->asked[knob] || round->now_ns < job->refused_until_ns[knob] ||
	    round_pin(round->config, job->job, knob))
		return false;
	if (want > now)
		return !(want >= l->up_value && round->now_ns < l->up_until_ns);
	return !(want <= l->down_value && round->now_ns < l->down_until_ns);
}

/* Returns the model's value of a knob if it is worth a change and allowed; otherwise its value now. */
static uint64_t wanted_value(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	const struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, knob), want = job->model.value[knob];
	double unit = round->plans[index].now.chunk_bytes;

	if (!differs(knob, now, want, isnan(unit) ? 0 : unit) || !may_turn(round, job, knob, want))
		return now;
	return want;
}

static double rate_of(const struct tuner_round *round, size_t index, const struct tuner_knobs *knobs)
{
	const struct knob_plan *p = &round->plans[index];

	return target_rate(&round->state->jobs[index], &p->now, &p->space, knobs);
}

static struct tuner_knobs current(const struct tuner_job *job)
{
	struct tuner_knobs knobs;

	for (int k = 0; k < TUNER_N_KNOBS; k++)
		knobs.value[k] = round_value(job, (enum tuner_knob)k);
	return knobs;
}

static void turn(struct tuner_round *round, size_t index, enum tuner_knob knob, enum tuner_rule rule,
		 uint64_t value, double expected)
{
	char why[160];

	round_explain(round, index, knob, value, why, sizeof(why));
	round_decide(round, index, &(struct wish){knob, rule, value, expected},
		     "%s; expected %.0f samples/s instead of %.0f", why, expected,
		     round->plans[index].now.rate);
}

/* ---- by choice ---- */

static bool awaits_verdict(const struct tuner_job *job)
{
	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		bool fills = (k == TUNER_CACHE_BYTES || k == TUNER_DECODED_BYTES) &&
			     job->changes[k].new_value > job->changes[k].old_value;

		if (job->asked[k] || (job->changes[k].open && !fills))
			return true;
	}
	return false;
}

static void settle(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	job->phase = TUNER_PHASE_SETTLED;
	job->settled = round->plans[index].now;
	job->settled.demand = round->plans[index].demand;
	job->n_differs = 0;
	job->stall_ns = job->surplus_ns = 0;
}

/* Returns true if there is a wait that the knob could end. */
static bool is_felt(const struct job_figures *f, enum tuner_knob knob)
{
	return !((knob_is_of_storage(knob) ? f->fetch_wait : f->prep_wait) < FELT);
}

/* Returns the knob's value for a jump. The first jump applies all values of the model; later ones raise a
 * knob only if a wait is felt. A jump cuts a cache only in a job that has never settled: dropped chunks
 * take an epoch to return, and the first seconds of a new phase are no reason to drop them. */
static uint64_t jump_value(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	const struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, knob), want = wanted_value(round, index, knob);

	if (knob == TUNER_DECODED_BYTES) /* decoded copies take an epoch to show: only for settled jobs */
		return now;
	if (want > now)
		return job->n_jumps && !is_felt(&round->plans[index].now, knob) ? now : want;
	return knob == TUNER_CACHE_BYTES && job->settled.at_ns ? now : want;
}

static void jump(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	struct tuner_knobs to = current(job);
	double expected;
	bool any = false;

	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		uint64_t want = jump_value(round, index, (enum tuner_knob)k);

		any = any || want != to.value[k];
		to.value[k] = want;
	}
	if (!any || job->n_jumps >= JUMPS_MAX || round->now_ns > job->jump_ns + JUMP_NS) {
		settle(round, index);
		return;
	}
	expected = rate_of(round, index, &to);
	/* A model that expects less than the present rate has nothing more to offer. */
	if (job->n_jumps && expected < round->plans[index].now.rate * LESS) {
		settle(round, index);
		return;
	}
	job->n_jumps++;
	/* Lower knobs first, so that others can take the resources in the same second. */
	for (int pass = 0; pass < 2; pass++)
		for (int k = 0; k < TUNER_N_KNOBS; k++)
			if ((to.value[k] < round_value(job, (enum tuner_knob)k)) == !pass)
				turn(round, index, (enum tuner_knob)k, TUNER_RULE_MODEL, to.value[k],
				     expected);
}

/* Returns the knob that gains most if changed by itself; -1: none gains enough. */
static int best_single(const struct tuner_round *round, size_t index, double *ret_rate)
{
	const struct tuner_job *job = &round->state->jobs[index];
	const struct tuner_knobs now = current(job);
	double base = rate_of(round, index, &now), best = base * WORTH, all_rate;
	struct tuner_knobs all = now;
	int found = -1;

	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		struct tuner_knobs one = now;

		if (!is_felt(&round->plans[index].now, (enum tuner_knob)k))
			continue;
		all.value[k] = one.value[k] = wanted_value(round, index, (enum tuner_knob)k);
		if (one.value[k] != now.value[k] && rate_of(round, index, &one) > best) {
			best = rate_of(round, index, &one);
			found = k;
		}
	}
	*ret_rate = best;
	if (found >= 0)
		return found;
	/* If two stages are equally slow, neither knob helps without the other: one is changed now, the
	 * other later. */
	all_rate = rate_of(round, index, &all);
	for (int k = 0; k < TUNER_N_KNOBS && all_rate > base * WORTH; k++) {
		if (all.value[k] > now.value[k]) {
			*ret_rate = base;
			return k;
		}
	}
	return -1;
}

/* Returns true if the job's limits allow this value. More prefetching is useless if storage is known to
 * deliver its maximum. */
static bool has_space(const struct tuner_job *job, const struct knob_plan *p, enum tuner_knob knob,
		      uint64_t want)
{
	switch (knob) {
	case TUNER_PREFETCH_CHUNKS: return want <= p->space.prefetch && !(job->full_bandwidth > 0);
	case TUNER_DAEMON_WORKERS: return want <= p->space.daemon_workers;
	case TUNER_CLIENT_WORKERS: return want <= p->space.client_workers;
	case TUNER_CACHE_BYTES: return (double)want <= p->space.cache_bytes;
	case TUNER_DECODED_BYTES: return false; /* only decoded_rules.c sets this knob */
	}
	return false;
}

/* Tries a small step against a stall that the model cannot explain, where the stall is felt. */
static void try_step(struct tuner_round *round, size_t index)
{
	const struct tuner_job *job = &round->state->jobs[index];
	const struct knob_plan *p = &round->plans[index];
	const struct tuner_knobs knobs = current(job);
	double x = target_cached_ratio(&p->now, (double)knobs.value[TUNER_CACHE_BYTES]);
	bool fetch = p->now.fetch_wait > p->now.prep_wait;
	enum tuner_knob knob = fetch ? TUNER_PREFETCH_CHUNKS : TUNER_DAEMON_WORKERS;
	uint64_t now = round_value(job, knob), want = fetch ? now + now / 2 + 1 : now + 1;

	if (!fetch && p->now.client_cpu_s > p->now.daemon_cpu_s &&
	    round_value(job, TUNER_CLIENT_WORKERS) > 0) {
		knob = TUNER_CLIENT_WORKERS;
		want = round_value(job, knob) + 1;
	}
	if (!has_space(job, p, knob, want))
		return;
	if (job->changes[TUNER_DECODED_BYTES].open) /* decoded copies in the making explain the wait */
		return;
	if (p->now.hit < x * FILLED) /* the filling cache explains the wait */
		return;
	if (!(p->now.wait > STALL_TRY) || !(rate_of(round, index, &knobs) > p->now.rate * UNEXPLAINED) ||
	    !may_turn(round, job, knob, want))
		return;
	round_decide(round, index,
		     &(struct wish){knob, TUNER_RULE_STALL, want, fmin(p->now.rate * 1.25, p->now.demand)},
		     "waits %.1f%% for data (%.1f%% storage, %.1f%% preparing), which the model does not "
		     "explain: trying a larger value",
		     100 * p->now.wait, 100 * p->now.fetch_wait, 100 * p->now.prep_wait);
}

static void relieve(struct tuner_round *round, size_t index)
{
	const struct tuner_knobs now = current(&round->state->jobs[index]);
	double expected;
	int k = best_single(round, index, &expected);

	/* Decoded copies only save CPU time. If others use the cores, the gain applies to the measured rate,
	 * not to the model's. */
	if (k == TUNER_DECODED_BYTES)
		expected =
		    fmin(expected, round->plans[index].now.rate * expected / rate_of(round, index, &now));

	if (k < 0)
		try_step(round, index);
	else
		turn(round, index, (enum tuner_knob)k, TUNER_RULE_STALL,
		     wanted_value(round, index, (enum tuner_knob)k), expected);
}

/* Turns down the first knob that is higher than the model's value, most expensive first. */
static void give_back(struct tuner_round *round, size_t index)
{
	static const enum tuner_knob order[] = {TUNER_CLIENT_WORKERS, TUNER_DAEMON_WORKERS, TUNER_CACHE_BYTES,
						TUNER_PREFETCH_CHUNKS};
	struct tuner_job *job = &round->state->jobs[index];
	const struct job_figures *figures = &round->plans[index].now;
	const struct tuner_knobs now = current(job);
	uint64_t since = job->surplus_ns;

	job->surplus_ns = 0;
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		struct tuner_knobs less = now;

		less.value[order[i]] = wanted_value(round, index, order[i]);
		if (less.value[order[i]] >= now.value[order[i]] ||
		    rate_of(round, index, &less) < rate_of(round, index, &now) / WORTH)
			continue;
		/* Does not lower the knob either if the model then expects less than the measured rate. */
		if (figures->wait > STALL && is_felt(figures, order[i]) &&
		    rate_of(round, index, &less) < figures->rate * LESS)
			continue;
		job->surplus_ns = since ? since : round->now_ns;
		if (round->now_ns < job->surplus_ns + SURPLUS_NS ||
		    round->now_ns < job->changed_ns + round->config->cooldown_ns)
			return;
		job->surplus_ns = 0;
		turn(round, index, order[i], TUNER_RULE_GIVE_BACK, less.value[order[i]],
		     rate_of(round, index, &less));
		return;
	}
}

static void apply_settled(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	const struct knob_plan *p = &round->plans[index];

	if (!(p->now.wait > STALL)) {
		job->stall_ns = 0;
		give_back(round, index);
		return;
	}
	if (!job->stall_ns)
		job->stall_ns = round->now_ns;
	if (!job->n_differs && round->now_ns >= job->stall_ns + STALL_NS &&
	    round->now_ns >= job->changed_ns + round->config->cooldown_ns) {
		size_t before = round->ret->n_decisions;

		relieve(round, index);
		if (round->ret->n_decisions != before)
			return;
	}
	give_back(round, index);
}

/* Gives back resources that the job can get again at once. Keeps memory that took an epoch to fill, as
 * long as nobody else needs it. */
static void rest(struct tuner_round *round, size_t index)
{
	static const uint64_t least[TUNER_N_KNOBS] = {
	    [TUNER_PREFETCH_CHUNKS] = 1, [TUNER_DAEMON_WORKERS] = 1, [TUNER_CLIENT_WORKERS] = 0};
	struct tuner_job *job = &round->state->jobs[index];

	if (job->rested)
		return;
	job->before_idle = current(job);
	job->rested = true;
	for (int k = TUNER_PREFETCH_CHUNKS; k <= TUNER_CLIENT_WORKERS; k++)
		if (least[k] < round_value(job, (enum tuner_knob)k) &&
		    may_turn(round, job, (enum tuner_knob)k, least[k]))
			round_decide(
			    round, index, &(struct wish){(enum tuner_knob)k, TUNER_RULE_IDLE, least[k], NAN},
			    "the job took no data for %.0f s", (double)(round->now_ns - job->idle_ns) / 1e9);
}

static void wake(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	job->rested = false;
	for (int k = TUNER_PREFETCH_CHUNKS; k <= TUNER_CLIENT_WORKERS; k++)
		if (job->before_idle.value[k] > round_value(job, (enum tuner_knob)k) &&
		    may_turn(round, job, (enum tuner_knob)k, job->before_idle.value[k]))
			round_decide(round, index,
				     &(struct wish){(enum tuner_knob)k, TUNER_RULE_IDLE,
						    job->before_idle.value[k], NAN},
				     "the job takes data again: the knob's earlier value is restored");
}

void round_apply_rules(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	switch (job->phase) {
	case TUNER_PHASE_NEW:
	case TUNER_PHASE_BLIND: return;
	case TUNER_PHASE_IDLE: rest(round, index); return;
	case TUNER_PHASE_JUMPING:
	case TUNER_PHASE_SETTLED: break;
	}
	if (job->rested)
		wake(round, index);
	if (awaits_verdict(job) || round->plans[index].n < SAMPLES_MIN)
		return;
	if (round_recover(round, index))
		return;
	if (job->phase == TUNER_PHASE_JUMPING)
		jump(round, index);
	else
		apply_settled(round, index);
}
