/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State that the parts of one tuner_decide() share. */

#include "state.h"

struct knob_plan {
	struct job_figures now;    /* the estimate since the last change; all NAN without samples */
	double demand;             /* demand as measured. NAN: not known, and now.demand is a lower bound */
	uint32_t n;                /* samples that the estimate is made from */
	struct memory_space space; /* limits of the job */
};

struct tuner_round {
	const struct tuner_config *config;
	struct tuner_state *state;
	struct stall_node node;
	uint64_t now_ns;
	double cache_total;  /* limit of all caches together, now */
	double cache_growth; /* sum beyond which caches do not grow */
	bool cache_hard;     /* cache_total is a limit of the operator or the node, and not set by pressure */
	double workers_total;
	struct knob_plan plans[TUNER_MAX_JOBS]; /* indexed as in state->jobs */
	struct tuner_result *ret;
};

/* ---- decide.c ---- */
/* Returns the pin for a knob of a job, or NULL. */
const struct tuner_pin *round_pin(const struct tuner_config *config, uint64_t job, enum tuner_knob knob);
uint64_t round_value(const struct tuner_job *job,
		     enum tuner_knob knob); /* the requested value, else the one in force */

/* ---- judge.c ---- */
void round_judge(struct tuner_round *round, size_t index);
void round_verdict(struct tuner_round *round, struct tuner_job *job, enum tuner_knob knob,
		   enum tuner_outcome outcome, const struct job_figures *after, const char *text);

/* ---- rules.c ---- */
/* Changes the knobs of all jobs, and fills in the views: bounds of each job first, because what one gives up
 * another may take. */
void round_apply(struct tuner_round *round);

/* A rule's request to set a knob. */
struct wish {
	enum tuner_knob knob;
	enum tuner_rule rule;
	uint64_t value;
	double expected; /* expected rate; NAN: none, and the change is not judged */
};

/* Sets the knob, clamped to the job's limits. Does not record a value that changes nothing. */
void round_decide(struct tuner_round *round, size_t index, const struct wish *wish, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Returns true if the knob shortens waits for storage; the others shorten waits for preparing. */
static inline bool knob_is_of_storage(enum tuner_knob knob)
{
	return knob == TUNER_CACHE_BYTES || knob == TUNER_PREFETCH_CHUNKS;
}

/* Replaces "nan" and "inf", which represent unknown figures, by "?". */
void words_mend(char *text);
