/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of knobs, and their record. Limits, memory pressure, pins and other jobs' shares apply at once, and
 * decoded copies go first where memory is tight. All else is optional. A jumping job gets the model's values,
 * several knobs at once. A settled job gets the one knob that a stall needs, or less of one that is too high.
 * An idle job returns resources.
 */
#include "lib/units.h"
#include "round.h"

#include <math.h>
#include <stdio.h>
#include <stdarg.h>
#include <string.h>

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

#define HOLD_NS     (60 * SECOND_NS)
#define HOLD_MAX_NS (3600 * SECOND_NS)
#define WELL_TIMES  4
#define ALL         0.995 /* share of the crops from which on 100 % is printed */
#define SLACK       0.9   /* a smaller loss of memory is not worth evicting decoded copies */

static double others_cache(const struct tuner_round *round, size_t index)
{
	double sum = 0;

	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		if (i != index)
			sum += (double)round_value(&round->state->jobs[i], TUNER_CACHE_BYTES);
	return sum;
}

static double others_workers(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	double sum = 0;

	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		for (int k = TUNER_DAEMON_WORKERS; k <= TUNER_CLIENT_WORKERS; k++)
			if (i != index || k != (int)knob)
				sum += (double)round_value(&round->state->jobs[i], (enum tuner_knob)k);
	return sum;
}

/* Returns the highest allowed value of the knob. */
static double most_of(const struct tuner_round *round, size_t index, enum tuner_knob knob)
{
	double workers = round->workers_total - others_workers(round, index, knob);

	switch (knob) {
	case TUNER_CACHE_BYTES: return round->cache_growth - others_cache(round, index);
	case TUNER_PREFETCH_CHUNKS: return round->config->prefetch_chunks_max;
	case TUNER_DAEMON_WORKERS: return fmin(round->config->daemon_workers_max, workers);
	case TUNER_CLIENT_WORKERS: return fmin(round->config->client_workers_max, workers);
	case TUNER_DECODED_BYTES: return (double)round->config->decoded_bytes_max;
	}
	return 0;
}

/* Keeps every knob's growth within the node's sums, for any rule. Never prevents shrinking. */
static uint64_t clamp(const struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value)
{
	uint64_t old = round_value(&round->state->jobs[index], knob);
	double most;

	if (knob == TUNER_DAEMON_WORKERS && !value)
		value = 1;
	if (value <= old)
		return value;
	most = most_of(round, index, knob);
	if ((double)value <= most)
		return value;
	return most <= (double)old ? old : (uint64_t)most;
}

void round_decide(struct tuner_round *round, size_t index, const struct wish *wish, const char *format, ...)
{
	enum tuner_knob knob = wish->knob;
	enum tuner_rule rule = wish->rule;
	double expected = wish->expected;
	struct tuner_job *job = &round->state->jobs[index];
	const struct knob_plan *plan = &round->plans[index];
	uint64_t old = round_value(job, knob), since_ns = job->changed_ns;
	uint64_t value = clamp(round, index, knob, wish->value);
	struct tuner_decision *d;
	double stray, decoded_cache;
	va_list args;

	if (value == old || !(job->tunable & 1u << knob) ||
	    round->ret->n_decisions == sizeof(round->ret->decisions) / sizeof(round->ret->decisions[0]))
		return;
	if (job->changes[knob].open && rule != TUNER_RULE_UNDO)
		round_verdict(round, job, knob, TUNER_UNCLEAR, NULL,
			      "the knob changed again before its effect could be measured");
	d = &round->ret->decisions[round->ret->n_decisions++];
	*d = (struct tuner_decision){
	    .id = ++round->state->next_id,
	    .job = job->job,
	    .at_ns = round->now_ns,
	    .knob = knob,
	    .rule = rule,
	    .old_value = old,
	    .new_value = value,
	    .rate_before = plan->now.rate,
	    .wait_before = plan->now.wait,
	    .rate_expected = expected,
	    .wait_expected = plan->demand > 0 && expected > 0 ? fmax(1 - expected / plan->demand, 0) : NAN};
	va_start(args, format);
	vsnprintf(d->reason, sizeof(d->reason), format, args);
	words_mend(d->reason);
	va_end(args);
	job->wanted.value[knob] = value;
	job->asked[knob] = true;
	job->asked_ns[knob] = job->changed_ns = round->now_ns;
	if (knob == TUNER_CLIENT_WORKERS)
		job->took_ns = 0;
	if (isnan(expected))
		return;
	(void)job_stray(job, since_ns, &stray);
	decoded_cache = knob == TUNER_DECODED_BYTES ? decoded_daemon_cpu_s(job, &plan->now, value) : NAN;
	job->changes[knob] = (struct knob_change){.open = true,
						  .id = d->id,
						  .at_ns = round->now_ns,
						  .rule = rule,
						  .old_value = old,
						  .new_value = value,
						  .rate_before = plan->now.rate,
						  .wait_before = plan->now.wait,
						  .fetch_before = plan->now.fetch_wait,
						  .prep_before = plan->now.prep_wait,
						  .demand_before = plan->demand,
						  .bandwidth_before = plan->now.bandwidth,
						  .rate_expected = expected,
						  .cpu_before = plan->now.daemon_cpu_s,
						  .cpu_expected = decoded_cache,
						  .stray_before = stray};
}

static const char *bytes_text(char buffer[24], double bytes)
{
	return isnan(bytes) ? "?" : units_format_bytes(buffer, 24, (uint64_t)fmin(fmax(bytes, 0), 1e18));
}

static void round_explain_decoded(const struct tuner_round *round, size_t index, uint64_t value, char *text,
				  size_t size)
{
	const struct job_figures *f = &round->plans[index].now;
	double all = decoded_all_bytes(f);
	char memory[24], serve[48] = "";

	if (f->decoded_s > 0)
		snprintf(text, size, "decoding takes %.0f us per sample, %.0f us with a decoded copy; ",
			 1e6 * f->fresh_s, 1e6 * f->decoded_s);
	else
		snprintf(text, size, "decoding takes %.0f us per sample; ", 1e6 * f->fresh_s);
	snprintf(memory, sizeof(memory), "?");
	if (all >= 0 && all < 1e18)
		units_format_bytes(memory, sizeof(memory), (uint64_t)all);
	if (f->decoded_serve < ALL)
		snprintf(serve, sizeof(serve), ", which serve %.0f%% of the crops", 100 * f->decoded_serve);
	for (size_t n = 0; n < size; n++) {
		if (text[n])
			continue;
		snprintf(text + n, size - n,
			 "space for %.0f%% of the decoded copies of %.0f samples (%s%s)%s",
			 100 * decoded_cover(f, (double)value), f->decoded, memory,
			 f->decoded_size > 0 ? "" : ", guessed", serve);
		return;
	}
}

/* Writes the model's reasons for this value of the knob. */
static void round_explain(const struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value,
			  char *text, size_t size)
{
	const struct tuner_job *job = &round->state->jobs[index];
	const struct job_figures *f = &round->plans[index].now;
	char one[24], two[24], handoff[64] = "";

	switch (knob) {
	case TUNER_CACHE_BYTES:
		snprintf(text, size, "storage delivers %s/s, %.0f samples/s need %s/s: %.0f%% of %s cached",
			 bytes_text(one, job->full_bandwidth > 0 ? job->full_bandwidth : f->bandwidth),
			 f->demand, bytes_text(two, f->demand * f->chunk_bytes / f->samples_per_chunk),
			 100 * target_cached_ratio(f, (double)value),
			 bytes_text((char[24]){0}, f->dataset_bytes));
		return;
	case TUNER_PREFETCH_CHUNKS:
		if (f->latency_p95_s > 0)
			snprintf(one, sizeof(one), " (95 %%: %.1f ms)", 1e3 * f->latency_p95_s);
		else
			one[0] = 0;
		snprintf(text, size,
			 "a chunk of %.0f samples takes %.1f ms%s, %.0f samples/s are requested, the shuffle "
			 "window has %.0f chunks",
			 f->samples_per_chunk, 1e3 * f->latency_s, one, f->demand, f->window);
		return;
	case TUNER_DAEMON_WORKERS:
		snprintf(text, size, "%.1f us of the daemon's CPU per sample, %.0f samples/s requested",
			 1e6 * f->daemon_cpu_s, f->demand);
		return;
	case TUNER_CLIENT_WORKERS:
		if (isfinite(f->handoff_s)) /* unknown until a worker has handed a sample over */
			snprintf(handoff, sizeof(handoff), "hand-over from a worker %.1f us, ",
				 1e6 * f->handoff_s);
		snprintf(text, size, "%.1f us of Python per sample, %s%.0f samples/s requested",
			 1e6 * f->client_cpu_s, handoff, f->demand);
		return;
	case TUNER_DECODED_BYTES: round_explain_decoded(round, index, value, text, size); return;
	}
}

static void round_views(struct tuner_round *round)
{
	round->ret->n_views = round->state->n_jobs;
	for (uint32_t i = 0; i < round->state->n_jobs; i++) {
		const struct tuner_job *job = &round->state->jobs[i];
		const struct job_figures *f = &round->plans[i].now;
		struct tuner_view *v = &round->ret->views[i];
		char speed[80];

		*v = (struct tuner_view){.job = job->job,
					 .phase = job->phase,
					 .wanted = job->wanted,
					 .model = job->model,
					 .rate = f->rate,
					 .demand = round->plans[i].demand,
					 .wait = f->wait};
		switch (job->phase) {
		case TUNER_PHASE_NEW: snprintf(v->text, sizeof(v->text), "too few measurements yet"); break;
		case TUNER_PHASE_BLIND:
			snprintf(v->text, sizeof(v->text), "no usable measurements: knobs stay as they are");
			break;
		case TUNER_PHASE_IDLE: snprintf(v->text, sizeof(v->text), "takes no data"); break;
		case TUNER_PHASE_JUMPING:
		case TUNER_PHASE_SETTLED:
			/* Both are measured, so that the rate may be the larger one. */
			if (f->rate > v->demand)
				snprintf(speed, sizeof(speed), "%.0f samples/s, all that are requested",
					 f->rate);
			else
				snprintf(speed, sizeof(speed), "%.0f of %.0f samples/s requested", f->rate,
					 v->demand);
			snprintf(v->text, sizeof(v->text),
				 "%s; waits %.1f%% for data (%.1f%% storage, "
				 "%.1f%% preparing)",
				 speed, 100 * f->wait, 100 * f->fetch_wait, 100 * f->prep_wait);
			break;
		}
		words_mend(v->text);
	}
}

/* Disables decoded copies for a minute, then for two, four, ... up to an hour. */
static void hold(struct tuner_job *job, uint64_t now_ns)
{
	struct lesson *l = &job->lessons[TUNER_DECODED_BYTES];

	/* Starts over with the shortest hold if nothing went wrong for WELL_TIMES times the last hold. */
	if (now_ns > l->up_until_ns + WELL_TIMES * l->up_hold_ns)
		l->up_hold_ns = 0;
	l->up_hold_ns = l->up_hold_ns ? 2 * l->up_hold_ns : HOLD_NS;
	if (l->up_hold_ns > HOLD_MAX_NS)
		l->up_hold_ns = HOLD_MAX_NS;
	l->up_value = 0;
	l->up_until_ns = now_ns + l->up_hold_ns;
}

/* Returns true if it evicted decoded copies, all or some. */
static bool round_bound_decoded(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	const struct job_figures *f = &round->plans[index].now;
	uint64_t now = round_value(job, TUNER_DECODED_BYTES);

	if (!now || job->asked[TUNER_DECODED_BYTES] ||
	    round_pin(round->config, job->job, TUNER_DECODED_BYTES))
		return false;
	if (round->state->pressure.tight) {
		hold(job, round->now_ns);
		round_decide(round, index, &(struct wish){TUNER_DECODED_BYTES, TUNER_RULE_PRESSURE, 0, NAN},
			     "memory is tight (tasks waited %.1f%% of the last 10 s, %.0f MiB left): decoded "
			     "copies are evicted first",
			     fmax(round->node.memory_some_avg10, 0),
			     round->node.memory_headroom_bytes / 0x1p20);
		return true;
	}
	if (f->decoded_space < SLACK * (double)now) {
		round_decide(
		    round, index,
		    &(struct wish){TUNER_DECODED_BYTES, TUNER_RULE_SHARE, (uint64_t)f->decoded_space, NAN},
		    "chunks need the memory: %.0f MiB are left for decoded copies",
		    f->decoded_space / 0x1p20);
		return true;
	}
	return false;
}

static uint64_t bound_of(const struct tuner_round *round, const struct knob_plan *p, enum tuner_knob knob,
			 uint64_t value)
{
	double need = p->now.need_bytes, max = INFINITY;

	switch (knob) {
	case TUNER_CACHE_BYTES:
		max = fmin(p->space.cache_bytes, round->cache_total);
		/* Pressure never takes memory that sessions need; an operator's limit may. */
		if (!round->cache_hard && need > 0)
			max = fmax(max, need);
		break;
	case TUNER_PREFETCH_CHUNKS: max = round->config->prefetch_chunks_max; break;
	case TUNER_DAEMON_WORKERS: max = fmax((double)p->space.daemon_workers, 1); break;
	case TUNER_CLIENT_WORKERS: max = (double)p->space.client_workers; break;
	case TUNER_DECODED_BYTES: max = (double)round->config->decoded_bytes_max; break;
	}
	return (double)value > max ? (uint64_t)max : value;
}

static void apply_pin(struct tuner_round *round, size_t index, enum tuner_knob knob,
		      const struct tuner_pin *pin)
{
	const struct tuner_job *job = &round->state->jobs[index];
	uint64_t value = bound_of(round, &round->plans[index], knob, pin->value);

	if (value == round_value(job, knob) || round->now_ns < job->refused_until_ns[knob])
		return;
	if (value == pin->value)
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PIN, value, NAN}, "pinned to %llu",
			     (unsigned long long)value);
	else
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PIN, value, NAN},
			     "pinned to %llu, but limited to %llu", (unsigned long long)pin->value,
			     (unsigned long long)value);
}

static void shrink(struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value)
{
	struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, knob);

	if (knob == TUNER_CACHE_BYTES && !round->cache_hard) {
		if (job->cache_before_pressure < now)
			job->cache_before_pressure = now;
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_PRESSURE, value, NAN},
			     "memory is tight (tasks waited %.1f%% of the last 10 s, %.1f%% of the last "
			     "second, %.0f MiB "
			     "left): all caches together at most %.0f MiB",
			     fmax(round->node.memory_some_avg10, 0), fmax(round->node.memory_some_now, 0),
			     round->node.memory_headroom_bytes / 0x1p20,
			     round->state->pressure.ceiling_bytes / 0x1p20);
	} else if (round->state->n_jobs > 1) {
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_SHARE, value, NAN},
			     "%u jobs share the node: this job's part of %s is %llu instead of %llu",
			     round->state->n_jobs, tuner_knob_name(knob), (unsigned long long)value,
			     (unsigned long long)now);
	} else {
		round_decide(round, index, &(struct wish){knob, TUNER_RULE_LIMIT, value, NAN},
			     "the limit allows %llu instead of %llu", (unsigned long long)value,
			     (unsigned long long)now);
	}
}

/* Carries out limits, pressure and pins. */
static void round_apply_bounds(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];

	if (round_bound_decoded(round, index))
		return;
	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		enum tuner_knob knob = (enum tuner_knob)k;
		const struct tuner_pin *pin = round_pin(round->config, job->job, knob);
		uint64_t now = round_value(job, knob),
			 bound = bound_of(round, &round->plans[index], knob, now);

		if (bound < now && (!job->asked[knob] || round->now_ns > job->asked_ns[knob] + SECOND_NS))
			shrink(round, index, knob, bound);
		else if (pin)
			apply_pin(round, index, knob, pin);
	}
}

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
	case TUNER_DECODED_BYTES: return false; /* only round_bound_decoded() sets this knob */
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

#define RECOVER_MIN 0.05 /* minimum step of a recovery, as a part of the former cache */

/* Returns true if it raised the cache again. */
/* Gives the job back the memory that pressure took, as the ceiling rises and as far as the job still needs
 * it. */
static bool round_recover(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	uint64_t now = round_value(job, TUNER_CACHE_BYTES), before = job->cache_before_pressure;
	double to = fmin((double)before, fmin(round->plans[index].space.cache_bytes, round->cache_growth));

	if (!before)
		return false;
	if (now >= before || job->model.value[TUNER_CACHE_BYTES] < now) {
		if (!(round->state->pressure.ceiling_bytes > 0))
			job->cache_before_pressure = 0; /* the job has all that it wants */
		return false;
	}
	if (to < (double)now + RECOVER_MIN * (double)before ||
	    round->now_ns < job->changed_ns + round->config->cooldown_ns)
		return false;
	round_decide(round, index, &(struct wish){TUNER_CACHE_BYTES, TUNER_RULE_RECOVER, (uint64_t)to, NAN},
		     "memory is no longer tight (tasks waited %.1f%% of the last 10 s): the cache grows back "
		     "towards %.0f MiB",
		     round->node.memory_some_avg10, (double)before / 0x1p20);
	return true;
}

static void round_apply_rules(struct tuner_round *round, size_t index)
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

void round_apply(struct tuner_round *round)
{
	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		round_apply_bounds(round, i);
	for (uint32_t i = 0; i < round->state->n_jobs; i++)
		round_apply_rules(round, i);
	round_views(round);
}
