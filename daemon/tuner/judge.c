/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges whether a change had the expected effect, from at least two samples entirely after it. A change that
 * made things worse is always undone; a costly change without effect is undone after the model was asked
 * again. An undone value is not tried again for a minute, then two, four, ... up to an hour.
 */
#include "round.h"

#include <math.h>
#include <stdio.h>

#define SAMPLES_SURE 4 /* seconds needed if the effect is as small as noise */
/* A loss within this many standard errors of the two rates is not certain. SAMPLES_MOST: the most samples to
 * wait for certainty. */
#define ERRORS       1.5
#define SAMPLES_MOST SEEN_MAX
/* A change made things worse if the rate fell below this part and waiting grew by this share of the time. The
 * noise of one-second figures is below both. */
#define WORSE_RATE 0.97
#define WORSE_WAIT 0.02
#define MUCH_WORSE 0.85 /* a rate below this part: undone at once, even in a settled job's cooldown */
/* A change helped if it brought a quarter of the promised gain, or if hardly any waiting is left. */
#define PART_OF_PROMISE 0.25
#define PROMISE_MIN     0.05 /* minimum promised gain, as a part of the rate: less would not be seen */
#define WAIT_LITTLE     0.03 /* share of the time waited that is no stall, as STALL in rules.c */
/* Ratio of demands from which the job itself must have changed, so that the knob cannot be judged. */
#define DEMAND_CHANGED 1.25
/* A job that waits more than this share of the time is not held up by itself, and its demand is measured only
 * in the little time between waits. */
#define WAIT_HIDES 0.5
/* Storage is saturated if bandwidth rises by less than this part of what depth did; a rise below DEPTH_WORTH
 * counts as none. */
#define DEPTH_HELPED 0.7
#define DEPTH_WORTH  1.1
/* Longest time to wait for a cache to fill, which takes an epoch. */
#define FILL_NS (600 * SECOND_NS)
/* A cache counts as filled when its hit ratio misses at most this fraction of min(cached, not cached). */
#define FILL_LEFT 0.1
/* Time for which an undone value is not tried again; doubled each time, up to an hour. */
#define LESSON_NS     (60 * SECOND_NS)
#define LESSON_MAX_NS (3600 * SECOND_NS)

void round_verdict(struct tuner_round *round, struct tuner_job *job, enum tuner_knob knob,
		   enum tuner_outcome outcome, const struct job_figures *after, const char *text)
{
	struct knob_change *c = &job->changes[knob];
	struct tuner_verdict *v;

	if (!c->open)
		return;
	c->open = false;
	if (round->ret->n_verdicts == sizeof(round->ret->verdicts) / sizeof(round->ret->verdicts[0]))
		return;
	v = &round->ret->verdicts[round->ret->n_verdicts++];
	*v = (struct tuner_verdict){.decision = c->id,
				    .job = job->job,
				    .at_ns = round->now_ns,
				    .knob = knob,
				    .outcome = outcome,
				    .rate_before = c->rate_before,
				    .rate_after = after ? after->rate : NAN,
				    .wait_before = c->wait_before,
				    .wait_after = after ? after->wait : NAN};
	snprintf(v->text, sizeof(v->text), "%s", text);
	words_mend(v->text);
}

/* Returns the value from which on the knob is not tried again. A cache has many small steps. For the other
 * knobs, the step next to the old value is as good as the tried one. */
static uint64_t beyond(enum tuner_knob knob, uint64_t old_value, uint64_t new_value)
{
	if (knob == TUNER_CACHE_BYTES)
		return new_value;
	return new_value > old_value ? old_value + 1 : old_value - 1;
}

static void learn(struct tuner_job *job, enum tuner_knob knob, const struct knob_change *c, uint64_t now_ns)
{
	struct lesson *l = &job->lessons[knob];
	bool up = c->new_value > c->old_value;
	uint64_t *hold = up ? &l->up_hold_ns : &l->down_hold_ns;

	*hold = *hold ? *hold * 2 : LESSON_NS;
	if (*hold > LESSON_MAX_NS)
		*hold = LESSON_MAX_NS;
	if (up) {
		l->up_value = beyond(knob, c->old_value, c->new_value);
		l->up_until_ns = now_ns + *hold;
	} else {
		l->down_value = beyond(knob, c->old_value, c->new_value);
		l->down_until_ns = now_ns + *hold;
	}
}

static void undo(struct tuner_round *round, size_t index, enum tuner_knob knob,
		 const struct job_figures *after, const char *why)
{
	struct tuner_job *job = &round->state->jobs[index];
	struct knob_change c = job->changes[knob];
	char text[TUNER_REASON_BYTES];

	snprintf(text, sizeof(text),
		 "%s: %.0f samples/s before, %.0f after; waited %.1f%% before, %.1f%% after", why,
		 c.rate_before, after->rate, 100 * c.wait_before, 100 * after->wait);
	round_verdict(round, job, knob, TUNER_UNDONE, after, text);
	learn(job, knob, &c, round->now_ns);
	round_decide(round, index, &(struct wish){knob, TUNER_RULE_UNDO, c.old_value, NAN},
		     "decision %llu %s", (unsigned long long)c.id, text);
}

static void accept(struct tuner_round *round, struct tuner_job *job, enum tuner_knob knob,
		   const struct job_figures *after)
{
	const struct knob_change *c = &job->changes[knob];
	char text[TUNER_REASON_BYTES];

	snprintf(text, sizeof(text),
		 "%.0f samples/s before, %.0f after (%.0f expected); waited %.1f%% before, %.1f%% after",
		 c->rate_before, after->rate, c->rate_expected, 100 * c->wait_before, 100 * after->wait);
	round_verdict(round, job, knob, TUNER_VERIFIED, after, text);
}

static bool changed_itself(const struct knob_change *c, const struct job_figures *after)
{
	if (c->wait_before > WAIT_HIDES && after->wait > WAIT_HIDES)
		return false;
	return c->demand_before > 0 && after->demand > 0 &&
	       (after->demand > c->demand_before * DEMAND_CHANGED ||
		after->demand < c->demand_before / DEMAND_CHANGED);
}

/* Returns true if this knob's kind of wait grew more than the other kind. If several knobs changed in one
 * second, this one is then to blame. */
static bool is_to_blame(const struct knob_change *c, enum tuner_knob knob, const struct job_figures *after)
{
	double fetch = after->fetch_wait - c->fetch_before, prep = after->prep_wait - c->prep_before;

	return knob_is_of_storage(knob) ? fetch >= prep : prep >= fetch;
}

static bool is_worse(const struct knob_change *c, const struct job_figures *after)
{
	return after->rate < c->rate_before * WORSE_RATE && after->wait > c->wait_before + WORSE_WAIT;
}

/* Returns true if the loss is larger than the deviation of single seconds explains. */
static bool is_certain(const struct knob_change *c, double stray, uint32_t n, const struct job_figures *after)
{
	double spread = fmax(stray, n < SAMPLES_SURE ? c->stray_before : 0);
	double error =
	    hypot(spread / sqrt(fmin(n, ESTIMATE_SAMPLES)), c->stray_before / sqrt(ESTIMATE_SAMPLES));

	return c->rate_before - after->rate > ERRORS * error * c->rate_before;
}

static bool has_helped(const struct knob_change *c, const struct job_figures *after)
{
	double promised = c->rate_expected / c->rate_before - 1, got = after->rate / c->rate_before - 1;

	return promised < PROMISE_MIN || got >= PART_OF_PROMISE * promised || after->wait < WAIT_LITTLE;
}

/* Learns the bandwidth limit of storage if more prefetching brings less than it should. Returns false if it
 * brought nothing. */
static bool learn_storage(struct tuner_job *job, const struct knob_change *c, const struct job_figures *after)
{
	double depth = (double)c->new_value / fmax((double)c->old_value, 1), rise;

	if (job->full_bandwidth > 0)
		return true; /* the limit is known already, so the depth was changed for something else */
	if (c->new_value <= c->old_value || !(c->bandwidth_before > 0) || !(after->bandwidth > 0) ||
	    depth < 1.4)
		return true;
	if (!(after->reading > 0.9) || after->wait < WAIT_LITTLE ||
	    after->bandwidth > c->bandwidth_before * depth * DEPTH_HELPED)
		return true;
	rise = fmax(after->bandwidth / c->bandwidth_before, 1);
	job->full_bandwidth = fmax(after->bandwidth, c->bandwidth_before);
	job->full_depth = (uint64_t)fmin(ceil(fmax((double)c->old_value, 1) * rise), (double)c->new_value);
	return rise > DEPTH_WORTH;
}

/* Returns true while a larger cache is filling: its effect shows when it is filled. */
static bool is_filling(const struct tuner_round *round, const struct tuner_job *job,
		       const struct knob_change *c, const struct job_figures *f)
{
	double x = target_cached_ratio(f, (double)c->new_value);

	return c->new_value > c->old_value && round->now_ns < c->at_ns + FILL_NS &&
	       !(f->hit >= x - FILL_LEFT * fmin(x, 1 - x) - 0.005);
}

/* A change, and the measurements of its effect. */
struct trial {
	size_t index;
	enum tuner_knob knob;
	const struct knob_change *change;
	const struct job_figures *after;
	uint32_t n; /* samples that `after` is made from */
	double stray;
	bool calm; /* the job may be changed or a change undone now: once per cooldown if it is settled */
	bool last; /* the model will not be asked again after this */
};

/* While a job jumps, nothing is undone: the next jump uses the new knowledge and sets the depth. */
static void judge_useless_depth(struct tuner_round *round, const struct trial *t)
{
	static const char why[] = "did not raise the rate of storage by prefetching more chunks";

	if (t->last)
		undo(round, t->index, t->knob, t->after, why);
	else
		round_verdict(round, &round->state->jobs[t->index], t->knob, TUNER_UNDONE, t->after, why);
}

/* Returns true if this round must not judge further: the change was undone, or later seconds may decide. */
static bool judge_loss(struct tuner_round *round, const struct trial *t)
{
	const struct knob_change *c = t->change;
	bool up = c->new_value > c->old_value, certain;

	if (!is_worse(c, t->after) || !is_to_blame(c, t->knob, t->after))
		return false;
	certain = is_certain(c, t->stray, t->n, t->after);
	if (certain && ((t->calm && t->n >= SAMPLES_SURE) || t->after->rate < c->rate_before * MUCH_WORSE))
		undo(round, t->index, t->knob, t->after,
		     up ? "made the job slower" : "took away what the job needs");
	return certain || t->n < (t->last ? SAMPLES_MOST : SAMPLES_SURE);
}

/* Judges a change that gave the job more resources and hardly helped. */
static void judge_no_gain(struct tuner_round *round, const struct trial *t)
{
	struct tuner_job *job = &round->state->jobs[t->index];

	if (!t->last) {
		round_verdict(round, job, t->knob, TUNER_UNCLEAR, t->after,
			      "helped less than expected; the model decides again");
		return;
	}
	if (!t->calm || t->n < SAMPLES_SURE)
		return;
	if (t->knob == TUNER_PREFETCH_CHUNKS && t->after->bandwidth > 0) {
		job->full_bandwidth = t->after->bandwidth;
		job->full_depth = t->change->old_value ? t->change->old_value : 1;
	}
	undo(round, t->index, t->knob, t->after, "did not help");
}

/* Returns true if decoded copies save at least this part of the CPU time that the change promised. Either of
 * two measurements is enough. The CPU time of all decoding includes effects that nobody foresaw, but
 * neighbours inflate it, in some seconds more than in others. The decoders' own figures are means over the
 * job's life. */
static bool decoded_save(const struct knob_change *c, const struct job_figures *after, double part)
{
	double promised = c->cpu_before - c->cpu_expected, all = c->cpu_before - after->daemon_cpu_s;
	double own = after->decoded_hit * (after->fresh_s - after->decoded_s);

	return fmax(all, own) >= part * promised;
}

/* Judges by CPU time. The rate is unreliable on a shared machine, and decoded copies take an epoch to fill
 * their memory. */
static void judge_decoded(struct tuner_round *round, const struct trial *t)
{
	const struct knob_change *c = t->change;
	char text[TUNER_REASON_BYTES];

	if (decoded_save(c, t->after, PART_OF_PROMISE)) {
		snprintf(text, sizeof(text),
			 "%.0f us of CPU time per sample before, %.0f after (%.0f expected), %.0f%% of "
			 "samples from decoded copies; %.0f samples/s before, %.0f after",
			 1e6 * c->cpu_before, 1e6 * t->after->daemon_cpu_s, 1e6 * c->cpu_expected,
			 100 * t->after->decoded_hit, c->rate_before, t->after->rate);
		round_verdict(round, &round->state->jobs[t->index], t->knob, TUNER_VERIFIED, t->after, text);
	} else if (t->calm && t->n >= SAMPLES_SURE) {
		snprintf(text, sizeof(text),
			 "did not help (%.0f us of CPU time per sample before, %.0f after)",
			 1e6 * c->cpu_before, 1e6 * t->after->daemon_cpu_s);
		undo(round, t->index, t->knob, t->after, text);
	}
}

static void judge_one(struct tuner_round *round, const struct trial *t)
{
	struct tuner_job *job = &round->state->jobs[t->index];
	const struct knob_change *c = t->change;
	const struct job_figures *after = t->after;

	if (isnan(after->wait) || isnan(c->wait_before) || changed_itself(c, after))
		round_verdict(round, job, t->knob, TUNER_UNCLEAR, after,
			      isnan(after->wait) ? "the wait time is not known" : "the job itself changed");
	else if (t->knob == TUNER_DECODED_BYTES && c->new_value > c->old_value)
		judge_decoded(round, t);
	else if (t->knob == TUNER_PREFETCH_CHUNKS && !learn_storage(job, c, after))
		judge_useless_depth(round, t);
	else if (judge_loss(round, t))
		return;
	else if (c->new_value <= c->old_value || has_helped(c, after))
		accept(round, job, t->knob, after);
	else
		judge_no_gain(round, t);
}

/* Epochs that filling takes: a decoded copy made in one epoch is used in the next. */
#define FILL_EPOCHS 2.5

#define FILL_MIN_S 600.0

#define FILL_MAX_S 86400.0

/* Returns how long decoded copies may take to fill their memory. */
static uint64_t decoded_fill_ns(const struct job_figures *f)
{
	double epochs_s = f->decoded > 0 && f->rate > 0 ? FILL_EPOCHS * f->decoded / f->rate : 0;

	return (uint64_t)(fmin(fmax(epochs_s, FILL_MIN_S), FILL_MAX_S) * (double)SECOND_NS);
}

void round_judge(struct tuner_round *round, size_t index)
{
	struct tuner_job *job = &round->state->jobs[index];
	bool jumping = job->phase == TUNER_PHASE_JUMPING;

	for (int k = 0; k < TUNER_N_KNOBS; k++) {
		const struct knob_change *c = &job->changes[k];
		struct job_figures after;
		struct trial t = {.index = index, .knob = (enum tuner_knob)k, .change = c, .after = &after};
		uint64_t since = job->changed_ns > c->at_ns ? job->changed_ns : c->at_ns;

		if (!c->open || job->asked[k] || round->now_ns < since + round->config->dwell_ns)
			continue;
		(void)job_estimate(job, since, &after);
		t.n = job_stray(job, since, &t.stray);
		if (t.n < SAMPLES_MIN)
			continue;
		if (k == TUNER_CACHE_BYTES && is_filling(round, job, c, &after))
			continue;
		if (k == TUNER_DECODED_BYTES && round->now_ns < c->at_ns + decoded_fill_ns(&after) &&
		    decoded_fill(&after, c->new_value))
			continue;
		t.calm = jumping || round->now_ns >= c->at_ns + round->config->cooldown_ns;
		t.last = !jumping || job->n_jumps >= 3;
		judge_one(round, &t);
	}
}
