/* SPDX-License-Identifier: Apache-2.0 */
#include "judge_ahead.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LOOKS       12  /* batches that say whether workers wait */
#define TRY_MIN     12  /* batches each way before there is a verdict, */
#define TRY_MAX     64  /* and when there has to be one */
#define TURN        8   /* batches in a row with or without */
#define WAITS_MIN   0.1 /* share of a worker's time */
#define GAIN_MAX    0.9 /* of the time without, to go on */
#define SURE        3.0 /* standard errors */
#define WATCH       64  /* batches after which it is looked at again whether it helps */
#define SPENT       0.95
#define RIGHT_MIN   64
#define WRONG_SHARE 10 /* one of so many */
#define ODD_MAX     32

const char *assist_state_name(enum assist_state state)
{
	static const char *const names[ASSIST_N_STATES] = {
	    [ASSIST_LOOKS] = "looks", [ASSIST_LEARNS] = "learns", [ASSIST_TRIES] = "tries",
	    [ASSIST_HELPS] = "helps", [ASSIST_RESTS] = "rests",   [ASSIST_STOPPED] = "stopped"};

	return state < ASSIST_N_STATES ? names[state] : "?";
}

static void mean_add(struct judge_mean *m, double value)
{
	m->n++;
	m->sum += value;
	m->squares += value * value;
}

static double mean(const struct judge_mean *m)
{
	return m->sum / m->n;
}

/* Of the mean, squared. */
static double error_squared(const struct judge_mean *m)
{
	double variance = m->squares / m->n - mean(m) * mean(m);

	return fmax(variance, 0) / (m->n - 1);
}

static void try_anew(struct judge_ahead *j)
{
	j->state = ASSIST_TRIES;
	j->n_turns = 0;
	memset(&j->with, 0, sizeof(j->with));
	memset(&j->without, 0, sizeof(j->without));
	memset(&j->since, 0, sizeof(j->since));
}

bool judge_ahead_order(struct judge_ahead *j, bool known)
{
	if (known && j->state == ASSIST_LEARNS)
		try_anew(j);
	if (!known || j->state == ASSIST_STOPPED || j->state == ASSIST_RESTS || j->state == ASSIST_LOOKS)
		return false;
	return j->state == ASSIST_HELPS || j->n_turns++ / TURN % 2 == 0;
}

static void look(struct judge_ahead *j, const struct batch_time *t)
{
	j->n_looked++;
	j->wall_s += t->wall_s;
	j->blocked_s += t->blocked_s;
	if (j->n_looked < LOOKS)
		return;
	j->state = j->blocked_s < WAITS_MIN * j->wall_s ? ASSIST_RESTS : ASSIST_LEARNS;
	snprintf(j->why, sizeof(j->why), "its workers wait %.0f %% of the time that they make batches%s",
		 100 * j->blocked_s / j->wall_s,
		 j->state == ASSIST_RESTS ? ": there is nothing to gain" : "");
}

static void verdict(struct judge_ahead *j)
{
	double gain, sure;

	if (j->with.n < TRY_MIN || j->without.n < TRY_MIN)
		return;
	gain = mean(&j->without) - mean(&j->with);
	sure = SURE * sqrt(error_squared(&j->with) + error_squared(&j->without));
	if (mean(&j->with) < GAIN_MAX * mean(&j->without) && gain > sure)
		j->state = ASSIST_HELPS;
	else if (j->with.n >= TRY_MAX && j->without.n >= TRY_MAX)
		j->state = ASSIST_RESTS;
	else
		return;
	snprintf(
	    j->why, sizeof(j->why), "a file takes a worker %.2f ms, and %.2f ms where it was read ahead%s",
	    1e3 * mean(&j->without), 1e3 * mean(&j->with), j->state == ASSIST_RESTS ? ": not worth it" : "");
}

/* It helped; does it still? */
static void watch(struct judge_ahead *j, const struct batch_time *t)
{
	mean_add(&j->since, t->wall_s);
	if (j->since.n < WATCH)
		return;
	if (mean(&j->since) > SPENT * mean(&j->without))
		try_anew(j);
	memset(&j->since, 0, sizeof(j->since));
}

void judge_ahead_batch(struct judge_ahead *j, const struct batch_time *t)
{
	if (j->state == ASSIST_LOOKS) {
		look(j, t);
	} else if (j->state == ASSIST_TRIES && t->known) {
		mean_add(t->ordered ? &j->with : &j->without, t->wall_s);
		verdict(j);
	} else if (j->state == ASSIST_HELPS && t->ordered) {
		watch(j, t);
	}
}

void judge_ahead_prediction(struct judge_ahead *j, bool same)
{
	if (same)
		j->n_same++;
	else
		j->n_other++;
	if (j->n_same + j->n_other < RIGHT_MIN)
		return;
	if (j->n_other > (j->n_same + j->n_other) / WRONG_SHARE) {
		j->state = ASSIST_STOPPED;
		snprintf(
		    j->why, sizeof(j->why),
		    "an index does not open the same file each time (%u of %u opened another): its order of "
		    "files cannot be known",
		    j->n_other, j->n_same + j->n_other);
	}
	j->n_same = j->n_other = 0;
}

void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices)
{
	j->n_odd = fits ? 0 : j->n_odd + 1;
	if (j->n_odd < ODD_MAX)
		return;
	j->state = ASSIST_STOPPED;
	snprintf(j->why, sizeof(j->why),
		 n_files
		     ? "its batches open files (%u for %u samples), but not the same number for each sample"
		     : "its samples are not files of their own (%u opened for %u samples)",
		 n_files, n_indices);
}

void judge_ahead_again(struct judge_ahead *j)
{
	if (j->state != ASSIST_RESTS)
		return;
	j->state = ASSIST_LOOKS;
	j->n_looked = 0;
	j->wall_s = j->blocked_s = 0;
}
