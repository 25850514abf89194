/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides once per second on each job's cache, read-ahead and workers, from the measurements. The aim is no
 * stall at the least CPU and memory, not the most throughput; the order of samples never depends on it.
 *
 *   struct tuner_state *state = calloc(1, tuner_state_bytes()); all zeros: nothing is known yet
 *
 *   every second:
 *     tuner_decide(&config, state, &node, samples, n, now_ns, result);
 *     for each result->decisions: store it, set the knob (unless this is a dry run)
 *     for each result->verdicts:  store it with the decision of that id
 *
 * Pure: no clock, no I/O, no allocation, no randomness, no global state. The same config, state and samples
 * give the same result, so recorded samples can be decided on again (`dieselctl replay`). All structs are
 * plain data without pointers: copy, store and compare them as they are.
 *
 * The tuner does not assume that its decisions are carried out: the knobs in the next samples are those in
 * force. A knob that does not follow (dry run, refused) gets the verdict TUNER_NOT_APPLIED, and is asked for
 * again only after a while.
 *
 * docs/explanation/tuning-decisions.md explains each rule and constant.
 */

#include "tuner/stall_sample.h"

#include <stdbool.h>
#include <stddef.h>

#define TUNER_MAX_JOBS     64 /* maximum number of jobs tuned at one time; others are only counted */
#define TUNER_MAX_PINS     128
#define TUNER_REASON_BYTES 240

/* ---- the operator's configuration -------------------------------------------------------------------- */

/* Fixes one knob of one job (or, with job 0, of all jobs) at this value. A job's own pin takes precedence
 * over one for all. Limits take precedence over pins: a pin beyond a limit is clamped, and the decision's
 * reason mentions it. */
struct tuner_pin {
	uint64_t job;
	enum tuner_knob knob;
	uint64_t value;
};

struct tuner_config {
	/* Limits of the node: sums over all jobs. They always hold: when a limit is lowered, knobs are
	 * lowered in the same second. 0 for cache_bytes_max: 75 % of the node's memory limit. 0 for
	 * workers_max: twice its cores, because half of the workers wait at any time. */
	uint64_t cache_bytes_max;
	uint32_t workers_max;   /* limit on daemon workers and client workers together */
	uint64_t reserve_bytes; /* headroom to leave free; 0: stall_reserve_bytes() */
	/* Limits of each job. */
	uint32_t prefetch_chunks_max;
	uint32_t daemon_workers_max;
	uint32_t client_workers_max; /* 0: a job never has client workers */
	uint64_t decoded_bytes_max;  /* 0: a job never has decoded copies */

	struct tuner_pin pins[TUNER_MAX_PINS];
	uint32_t n_pins;

	/* Times, ns. Dwell: from a change until its effect is judged. Cooldown: from one change of a settled
	 * job to the next. */
	uint64_t dwell_ns;
	uint64_t cooldown_ns;
};

/* Returns a configuration without pins, with the limits that the node sets and the documented times. */
struct tuner_config tuner_config_default(void);

/* ---- decisions and verdicts --------------------------------------------------------------------------- */

/* Reason for a change of a knob. Stored: never renumbered. */
enum tuner_rule {
	TUNER_RULE_MODEL, /* start or change of phase: sets several knobs at once to the stall model's values
			   */
	TUNER_RULE_STALL, /* a stall remains: one knob up */
	TUNER_RULE_GIVE_BACK, /* the knob is higher than needed: one knob down */
	TUNER_RULE_UNDO,      /* the last change did not have the expected effect */
	TUNER_RULE_PRESSURE,  /* memory becomes short: cache down at once */
	TUNER_RULE_RECOVER,   /* memory is no longer short */
	TUNER_RULE_SHARE,     /* another job needs the resource more, or no longer needs it */
	TUNER_RULE_LIMIT,     /* a limit of the operator or of the node was lowered */
	TUNER_RULE_PIN,       /* the operator fixed this value */
	TUNER_RULE_IDLE,      /* the job stopped or resumed taking data */
};

struct tuner_decision {
	uint64_t id; /* counts from 1 within a state */
	uint64_t job;
	uint64_t at_ns;
	enum tuner_knob knob;
	enum tuner_rule rule;
	uint64_t old_value, new_value;
	/* Measured when deciding, and expected by the model from all changes of this second together:
	 * samples/s, and the share of time spent waiting for data. NAN: not known. */
	double rate_before, rate_expected;
	double wait_before, wait_expected;
	char reason[TUNER_REASON_BYTES]; /* one line, with numbers */
};

/* Stored: never renumbered. */
enum tuner_outcome {
	TUNER_VERIFIED,    /* the change had the expected effect */
	TUNER_UNDONE,      /* the change lacked the effect and was undone in the same second (a decision of
			      TUNER_RULE_UNDO follows) */
	TUNER_UNCLEAR,     /* the job itself changed, or no effect could be measured: the value is kept */
	TUNER_NOT_APPLIED, /* the knob did not get the value */
};

struct tuner_verdict {
	uint64_t decision; /* id of the decision */
	uint64_t job;
	uint64_t at_ns;
	enum tuner_knob knob;
	enum tuner_outcome outcome;
	double rate_before, rate_after; /* samples/s */
	double wait_before, wait_after; /* share of time spent waiting for data */
	char text[TUNER_REASON_BYTES];
};

/* Phase of a job. */
enum tuner_phase {
	TUNER_PHASE_NEW,     /* too little is known about the job */
	TUNER_PHASE_JUMPING, /* started or changed: the model sets the knobs, feedback corrects them */
	TUNER_PHASE_SETTLED,
	TUNER_PHASE_IDLE,  /* takes no batches */
	TUNER_PHASE_BLIND, /* no usable samples for some seconds: the knobs stay unchanged */
};

/* The tuner's current view of a job, for `dieselctl why`, diesel-top and metrics. */
struct tuner_view {
	uint64_t job;
	enum tuner_phase phase;
	struct tuner_knobs wanted;     /* knobs after this second's decisions */
	struct tuner_knobs model;      /* the model's values, without other jobs' limits */
	double rate;                   /* smoothed consumption, samples/s */
	double demand;                 /* the trainer's rate if it never waited for data */
	double wait;                   /* smoothed share of time spent waiting for data */
	char text[TUNER_REASON_BYTES]; /* one line: reason for the phase and the knobs */
};

struct tuner_result {
	struct tuner_decision decisions[TUNER_MAX_JOBS * TUNER_N_KNOBS];
	size_t n_decisions;
	struct tuner_verdict verdicts[TUNER_MAX_JOBS * TUNER_N_KNOBS];
	size_t n_verdicts;
	struct tuner_view views[TUNER_MAX_JOBS];
	size_t n_views;
	uint32_t
	    n_samples_refused; /* implausible or late samples, and samples of jobs beyond TUNER_MAX_JOBS */
};

/* ---- deciding ----------------------------------------------------------------------------------------- */

/* The tuner's state between rounds (state.h). All zeros are valid. */
struct tuner_state;
size_t tuner_state_bytes(void);
/* Returns true if a round can start from this state. Check a stored state, which may be damaged. */
bool tuner_state_is_sane(const struct tuner_state *state);

/*
 * Runs one round. node may be NULL (nothing is known about it). Samples may come in any order, several or
 * none per job (the newest counts). A job without samples is forgotten after a minute; tuner_forget() drops
 * an ended job at once. Writes all of *ret (about 200 KiB: not for the stack).
 */
void tuner_decide(const struct tuner_config *config, struct tuner_state *state, const struct stall_node *node,
		  const struct stall_sample *samples, size_t n_samples, uint64_t now_ns,
		  struct tuner_result *ret);

void tuner_forget(struct tuner_state *state, uint64_t job);

/* Return names for texts: "model", "stall", ...; "verified", ...; "settled", ... */
const char *tuner_rule_name(enum tuner_rule rule);
const char *tuner_outcome_name(enum tuner_outcome outcome);
const char *tuner_phase_name(enum tuner_phase phase);
