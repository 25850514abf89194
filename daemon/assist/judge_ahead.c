/* SPDX-License-Identifier: Apache-2.0 */
#include "judge_ahead.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/clock.h"

#define BATCHES_MIN   12   /* number of batches after which to judge how workers spend their time */
#define WAITS_MIN     0.1  /* minimum share of time for which workers wait for files */
#define IDLE_MAX      0.5  /* maximum share of time for which workers wait for the trainer */
#define TURN_MORE     4    /* minimum number of batches in a turn, in addition to those in flight */
#define CLEAR_TURNS   2    /* turns of each kind that suffice if all turns with take < CLEAR of any without */
#define CLEAR         0.75 /* ratio of the time with reading ahead to the time without */
#define TRY_MIN       8    /* number of turns of each kind before a smaller difference counts */
#define TRY_MAX       32   /* number of turns of each kind after which the judge must decide */
#define GAIN_MAX      0.97 /* reading ahead continues up to this ratio of its time to the time without */
#define SURE          2.5  /* standard errors */
#define CUT_MAX       64 /* maximum number of consecutive turns without a measurement; then the judge rests */
#define UNKNOWN_MAX   64 /* number of consecutive batches with unknown files before it learns again */
#define WATCH         16 /* number of turns between checks of whether reading ahead still helps */
#define SPENT         0.97
#define RESIDENT_MIN  128 /* files */
#define RESIDENT_MOST 0.9
#define RIGHT_MIN     64
#define WRONG_SHARE   10 /* 1 in this many predictions may be wrong */
#define ODD_MAX       32

const char *assist_state_name(enum assist_state state)
{
	static const char *const names[ASSIST_N_STATES] = {
	    [ASSIST_LOOKS] = "looks", [ASSIST_LEARNS] = "learns", [ASSIST_TRIES] = "tries",
	    [ASSIST_HELPS] = "helps", [ASSIST_RESTS] = "rests",   [ASSIST_STOPPED] = "stopped"};

	return state < ASSIST_N_STATES ? names[state] : "?";
}

static void mean_add(struct judge_mean *m, double value)
{
	m->least = m->n ? fmin(m->least, value) : value;
	m->most = m->n ? fmax(m->most, value) : value;
	m->n++;
	m->sum += value;
	m->squares += value * value;
}

static double mean(const struct judge_mean *m)
{
	return m->sum / m->n;
}

/* Returns the squared standard error of the mean. */
static double error_squared(const struct judge_mean *m)
{
	double variance = m->squares / m->n - mean(m) * mean(m);

	return fmax(variance, 0) / (m->n - 1);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static void turn_begin(struct judge_ahead *j, bool whole)
{
	j->turn.id++;
	j->turn.n = 0;
	j->turn.n_whole += whole;
}

static void forget_slots(struct judge_ahead *j)
{
	memset(j->slots, 0, sizeof(j->slots));
	j->measured.from_ns = 0;
}

static void try_anew(struct judge_ahead *j)
{
	j->state = ASSIST_TRIES;
	j->n_cut = 0;
	j->counted = false;
	memset(&j->with, 0, sizeof(j->with));
	memset(&j->without, 0, sizeof(j->without));
	memset(&j->since, 0, sizeof(j->since));
	forget_slots(j);
	turn_begin(j, false);
}

static void rest(struct judge_ahead *j)
{
	j->state = ASSIST_RESTS;
	forget_slots(j);
}

/* Returns true if this turn reads ahead. The pattern is on, off, off, on, so that slow changes favour
 * neither. */
static bool turn_is_with(const struct judge_ahead *j)
{
	return j->state == ASSIST_HELPS || (j->turn.n_whole + 1) / 2 % 2 == 0;
}

static void verdict(struct judge_ahead *j)
{
	uint32_t n = j->with.n < j->without.n ? j->with.n : j->without.n;
	double gain, sure;
	bool clear;

	if (n < CLEAR_TURNS)
		return;
	clear = j->with.most < CLEAR * j->without.least;
	gain = mean(&j->without) - mean(&j->with);
	sure = SURE * sqrt(error_squared(&j->with) + error_squared(&j->without));
	if (clear || (n >= TRY_MIN && mean(&j->with) < GAIN_MAX * mean(&j->without) && gain > sure))
		j->state = ASSIST_HELPS;
	else if (n >= TRY_MAX || (n >= TRY_MIN && -gain > sure))
		rest(j);
	else
		return;
	snprintf(j->why, sizeof(j->why), "a batch takes %.2f ms without prefetch, %.2f ms with%s",
		 1e3 * mean(&j->without), 1e3 * mean(&j->with),
		 j->state == ASSIST_RESTS ? ": not worth it" : "");
}

/* Checks whether reading ahead still helps. */
static void watch(struct judge_ahead *j, double seconds)
{
	mean_add(&j->since, seconds);
	if (j->since.n < WATCH)
		return;
	if (mean(&j->since) > SPENT * mean(&j->without))
		try_anew(j);
	memset(&j->since, 0, sizeof(j->since));
}

/* Records that the trainer took a batch. The first batches of a turn, half as many as are in flight, are not
 * measured: batches of the previous turn are made at the same time. */
static void taken(struct judge_ahead *j, const struct judge_slot *s, uint32_t in_flight, uint32_t length,
		  uint64_t now_ns)
{
	double seconds;

	if (s->turn != j->measured.turn) {
		j->measured.turn = s->turn;
		j->measured.from_ns = 0;
	}
	if (s->at < in_flight / 2 || now_ns == 0)
		return;
	if (!j->measured.from_ns) {
		j->measured.from_ns = now_ns;
		j->measured.from = s->at;
		return;
	}
	if (s->at + 1 != length || now_ns <= j->measured.from_ns)
		return;
	seconds = (double)(now_ns - j->measured.from_ns) / (double)NS_PER_S / (s->at - j->measured.from);
	j->n_cut = 0;
	if (j->state == ASSIST_HELPS) {
		watch(j, seconds);
		return;
	}
	mean_add(s->ordered ? &j->with : &j->without, seconds);
	verdict(j);
}

/* Drops a turn in which an epoch ends, or a batch's files are not known. */
static void turn_cut(struct judge_ahead *j)
{
	if (!j->turn.n)
		return;
	turn_begin(j, false);
	if (j->state != ASSIST_TRIES || ++j->n_cut < CUT_MAX)
		return;
	rest(j);
	snprintf(j->why, sizeof(j->why), "its epochs are too short to measure whether prefetch helps");
}

/* Records a batch whose files are unknown. After many of them, ends the trial: the job iterates over
 * another data set. */
static void unknown(struct judge_ahead *j)
{
	turn_cut(j);
	if (++j->n_unknown < UNKNOWN_MAX || (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS))
		return;
	j->state = ASSIST_LEARNS;
	forget_slots(j);
	snprintf(j->why, sizeof(j->why), "the files of its sample indices are not known yet");
}

bool judge_ahead_written(struct judge_ahead *j, const struct batch_written *b)
{
	uint32_t in_flight = b->in_flight < JUDGE_BATCHES / 4 ? b->in_flight : JUDGE_BATCHES / 4;
	uint32_t length = in_flight + (in_flight / 2 > TURN_MORE ? in_flight / 2 : TURN_MORE);
	struct judge_slot *s;

	if (b->known && j->state == ASSIST_LEARNS)
		try_anew(j);
	if (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS)
		return false;
	if (b->number == 0) {
		forget_slots(j);
		turn_cut(j);
	}
	if (b->number >= in_flight) {
		s = &j->slots[(b->number - in_flight) % JUDGE_BATCHES];
		if (s->valid && s->number == b->number - in_flight)
			taken(j, s, in_flight, length, b->at_ns);
	}
	if (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS)
		return false;
	s = &j->slots[b->number % JUDGE_BATCHES];
	*s = (struct judge_slot){.number = b->number};
	if (!b->known) {
		unknown(j);
		return false;
	}
	j->n_unknown = 0;
	if (j->turn.n >= length)
		turn_begin(j, true);
	s->valid = true;
	s->turn = j->turn.id;
	s->at = j->turn.n++;
	s->ordered = turn_is_with(j);
	return s->ordered;
}

/* ---- input from workers and files ---------------------------------------------------------------------- */

void judge_ahead_worker(struct judge_ahead *j, const struct worker_time *t)
{
	bool gains;

	if (j->state != ASSIST_LOOKS)
		return;
	j->n_looked++;
	j->wall_s += t->wall_s;
	j->blocked_s += t->blocked_s;
	j->idle_s += t->idle_s;
	if (j->n_looked < BATCHES_MIN)
		return;
	if (j->idle_s > IDLE_MAX * j->wall_s) {
		rest(j);
		snprintf(j->why, sizeof(j->why),
			 "its workers wait for the trainer %.0f %% of the time: there is nothing to gain",
			 100 * j->idle_s / j->wall_s);
		return;
	}
	j->state = ASSIST_LEARNS;
	gains = j->blocked_s >= WAITS_MIN * j->wall_s;
	if (!gains || j->observe)
		rest(j);
	snprintf(j->why, sizeof(j->why), "its workers wait for files %.0f %% of the time%s",
		 100 * j->blocked_s / j->wall_s,
		 !gains       ? ": there is nothing to gain"
		 : j->observe ? ": dieseld would try prefetch, but only observes"
			      : "");
}

void judge_ahead_files(struct judge_ahead *j, uint64_t n_read, uint64_t n_resident)
{
	uint64_t n, resident;

	if (!j->counted) {
		j->counted = true;
		j->n_read = n_read;
		j->n_resident = n_resident;
	}
	resident = n_resident - j->n_resident;
	n = n_read - j->n_read + resident;
	if (n < RESIDENT_MIN)
		return;
	j->counted = false;
	if ((j->state != ASSIST_TRIES && j->state != ASSIST_HELPS) ||
	    (double)resident < RESIDENT_MOST * (double)n)
		return;
	rest(j);
	snprintf(j->why, sizeof(j->why), "its files are in memory: there is nothing to gain");
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
		snprintf(j->why, sizeof(j->why),
			 "the order of files cannot be predicted: the same sample index opens different "
			 "files at different times (%u of %u did)",
			 j->n_other, j->n_same + j->n_other);
	}
	j->n_same = j->n_other = 0;
}

void judge_ahead_no_order(struct judge_ahead *j)
{
	j->state = ASSIST_STOPPED;
	snprintf(j->why, sizeof(j->why),
		 "the order of files cannot be predicted: the same sample index opens different files at "
		 "different times");
}

void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices)
{
	j->n_odd = fits ? 0 : j->n_odd + 1;
	if (j->n_odd < ODD_MAX)
		return;
	j->state = ASSIST_STOPPED;
	snprintf(j->why, sizeof(j->why),
		 n_files
		     ? "its batches open files (%u for %u samples), but the number of files per sample varies"
		     : "it does not open one file per sample (%u files opened for %u samples)",
		 n_files, n_indices);
}

void judge_ahead_again(struct judge_ahead *j)
{
	if (j->state != ASSIST_RESTS)
		return;
	j->state = ASSIST_LOOKS;
	j->n_looked = 0;
	j->wall_s = j->blocked_s = j->idle_s = 0;
}
