/* SPDX-License-Identifier: Apache-2.0 */
/* Adds samples to their jobs. Handles clocks that step, and knobs that are not applied. */
#include "round.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static struct tuner_job *find_or_add(struct tuner_state *s, uint64_t id, uint64_t now_ns)
{
	struct tuner_job *job;

	for (uint32_t i = 0; i < s->n_jobs; i++)
		if (s->jobs[i].job == id)
			return &s->jobs[i];
	if (s->n_jobs == TUNER_MAX_JOBS)
		return NULL;
	job = &s->jobs[s->n_jobs++];
	memset(job, 0, sizeof(*job));
	job->job = id;
	job->first_ns = job->phase_ns = job->jump_ns = now_ns;
	/* The first sample may cover the time before this. */
	job->phase_ns = now_ns > 2 * SECOND_NS ? now_ns - 2 * SECOND_NS : 0;
	return job;
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

void round_take_samples(struct tuner_round *round, const struct stall_sample *samples, size_t n)
{
	struct tuner_state *s = round->state;

	follow_clock(round);
	for (size_t i = 0; i < n; i++) {
		struct tuner_job *job = NULL;
		struct job_figures f;
		bool first;

		if (figures_clean(&samples[i], round->now_ns, &f))
			job = find_or_add(s, samples[i].job, round->now_ns);
		if (!job || (job->n_seen && f.at_ns <= job->seen[(job->n_seen - 1) % SEEN_MAX].at_ns)) {
			round->ret->n_samples_refused++;
			continue;
		}
		first = !job->last_ns;
		job->last_ns = round->now_ns;
		job->dataset = samples[i].dataset;
		job->tunable = samples[i].tunable;
		job->n_trainers = samples[i].n_trainers;
		take_knobs(round, job, &samples[i].knobs, f.rate > 0, first);
		job_see(job, &f);
	}
	for (uint32_t i = s->n_jobs; i-- > 0;)
		if (round->now_ns > s->jobs[i].last_ns + FORGET_NS)
			tuner_forget(s, s->jobs[i].job);
}
