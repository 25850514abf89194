/* SPDX-License-Identifier: Apache-2.0 */
/* Evicts decoded copies before anything else: when memory is tight, and when caches need the memory. */
#include "round.h"

#include <math.h>
#include <stdio.h>

#include "lib/units.h"

#define HOLD_NS     (60 * SECOND_NS)
#define HOLD_MAX_NS (3600 * SECOND_NS)
#define WELL_TIMES  4
#define ALL         0.995 /* share of the crops from which on 100 % is printed */
#define SLACK       0.9   /* a smaller loss of memory is not worth evicting decoded copies */

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

bool round_bound_decoded(struct tuner_round *round, size_t index)
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

void round_explain_decoded(const struct tuner_round *round, size_t index, uint64_t value, char *text,
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
