/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the parts of one tuner_decide() hand to each other. */

#include "state.h"

struct knob_plan {
	struct job_figures now; /* the estimate since the last change; all NAN without samples */
	double demand; /* as it was measured. NAN: not known; now.demand is then the least that it can be */
	uint32_t n;    /* samples that the estimate is made from */
	struct memory_room room; /* what the job may have */
};

struct tuner_round {
	const struct tuner_config *config;
	struct tuner_state *state;
	struct stall_node node;
	uint64_t now_ns;
	double cache_total;  /* of all jobs, now */
	double cache_growth; /* caches do not grow beyond this sum */
	bool cache_hard;     /* cache_total is the operator's or the node's limit, and not set by pressure */
	double workers_total;
	struct knob_plan plans[TUNER_MAX_JOBS]; /* by index in state->jobs */
	struct tuner_result *ret;
};

/* ---- intake.c: samples and clocks into jobs ---- */
void round_take_samples(struct tuner_round *round, const struct stall_sample *samples, size_t n);

/* ---- rooms.c: limits, pressure and other jobs make each job's room ---- */
void round_make_totals(struct tuner_round *round);
void round_make_rooms(struct tuner_round *round);
/* The pin for a knob of a job, or NULL. */
const struct tuner_pin *round_pin(const struct tuner_config *config, uint64_t job, enum tuner_knob knob);
uint64_t round_value(const struct tuner_job *job, enum tuner_knob knob); /* in force, or asked for */

/* ---- judge.c ---- */
void round_judge(struct tuner_round *round, size_t index);
void round_verdict(struct tuner_round *round, struct tuner_job *job, enum tuner_knob knob,
		   enum tuner_outcome outcome, const struct job_figures *after, const char *text);

/* ---- phases.c: where the job stands ---- */
void round_update_phase(struct tuner_round *round, size_t index);

/* ---- bounds.c ---- */
void round_apply_bounds(struct tuner_round *round, size_t index);
/* Returns true if it turned the cache up again. */
bool round_recover(struct tuner_round *round, size_t index);

/* ---- form_rules.c ---- */
/* Returns true if decoded forms were given up, or some of them. */
bool round_bound_forms(struct tuner_round *round, size_t index);
void round_explain_forms(const struct tuner_round *round, size_t index, uint64_t value, char *text,
			 size_t size);

/* ---- rules.c ---- */
void round_apply_rules(struct tuner_round *round, size_t index);

/* ---- record.c ---- */
/* What a rule wants to do with a knob. */
struct wish {
	enum tuner_knob knob;
	enum tuner_rule rule;
	uint64_t value;
	double expected; /* rate; NAN: none, and the change is not judged */
};

/* Turns the knob; the value is clamped to the room. A value that changes nothing is not recorded. */
void round_decide(struct tuner_round *round, size_t index, const struct wish *wish, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Writes why the model wants this value of the knob. */
void round_explain(const struct tuner_round *round, size_t index, enum tuner_knob knob, uint64_t value,
		   char *text, size_t size);
void round_views(struct tuner_round *round);
/* Returns true if the knob shortens waits for storage; the others shorten waits for preparing. */
static inline bool knob_is_of_storage(enum tuner_knob knob)
{
	return knob == TUNER_CACHE_BYTES || knob == TUNER_PREFETCH_CHUNKS;
}

/* Replaces "nan" and "inf", which stand for unknown figures, by "?". */
void words_mend(char *text);
