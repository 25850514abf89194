/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Declarations that the control_*.c files share. */

#include "daemon/assist/assist.h"
#include "client/protocol.h"
#include "control.h"
#include "daemon/cache/job.h"
#include "daemon/sense/sensor.h"
#include "daemon/serve/serving.h"
#include "history/history.h"

/* ---- the newest decisions, kept in memory for WHY: the disk is not read while serving ---- */

/* A decision, with the measurements at that time: figures, or the text in entry.sample for a decision made
 * before a restart. */
struct control_log_entry {
	struct history_entry entry;
	bool has_sample;
	struct stall_sample sample;
	struct stall_node node;
};

struct control_log {
	struct control_log_entry *entries; /* a ring of WIRE_WHY_MAX; NULL until the first one */
	uint64_t n_added;
};

/* Mean of a figure that some samples lack. */
struct control_mean {
	double sum;
	uint32_t n;
};

/* Control's data about a job, in addition to its struct job. */
struct control_job {
	struct control_job *next;
	uint64_t id;
	uint32_t uid;
	bool has_sample, has_view;
	struct stall_sample sample; /* the newest */
	struct tuner_view view;
	/* The job's trainer process, recognised across restarts; start_ticks 0: not known. */
	int64_t pid;
	uint64_t start_ticks;
	uint32_t rank, world;
	struct tuner_knobs knobs;   /* knobs as last set */
	uint32_t read_weight;       /* weight as last set */
	double stall_s, measured_s; /* wait for data since the job began, during the measured_s seconds that
				       were measured */
	/* Sums over the seconds since the last point of the history. */
	struct {
		double seconds;
		struct control_mean rate, wait, fetch_stall, prep_stall, device;
		uint32_t n;
	} sums;
};

struct control {
	struct serving *serving;
	struct sensor *sensor;
	const struct assist *assist; /* NULL: no files are prefetched */
	struct settings settings;
	struct serving_knobs knobs; /* configured */
	struct control_job *jobs;
	uint64_t last_job; /* highest job number so far: a number identifies one job throughout the history */
	struct control_log log;
	struct history *history;
	char socket[112];                                             /* address where the daemon listens */
	char *history_path, history_problem[256], history_aside[256]; /* texts as last logged */
	struct tuner_config config;
	struct tuner_state *state;   /* allocated when the first job begins */
	struct tuner_result *result; /* scratch; 200 KiB */
	struct stall_node node;
	uint64_t n_applied[CONTROL_N_RULES];
	uint64_t n_rounds, n_refused, saved_round;
	uint64_t n_empty;   /* consecutive rounds without samples */
	json_t *remembered; /* jobs from before the restart that have not reconnected, or NULL */
	json_t
	    *foreign; /* settings of a newer dieseld that this one does not support: saved for it, or NULL */
};

struct control_job *control_find_job(const struct control *c, uint64_t id);

/* Makes the tuner forget the job, and records that in the history, so that a replay does the same. */
void control_forget(struct control *c, uint64_t id);

/* control_round.c */
void control_log_free(struct control_log *log);

/* Takes entry->entry.sample over, and frees it on -ENOMEM. */
int control_log_add(struct control_log *log, const struct control_log_entry *entry);

/* Returns the i-th newest entry, from 0; NULL: there are no more. */
const struct control_log_entry *control_log_newest(const struct control_log *log, uint64_t i);

/* Applies the limits and the mode of the whole daemon. */
void control_apply_limits(struct control *c);
/* Keeps workers for one user off the cores of another user's jobs, as long as no number of workers is set. */
void control_leave_cores(struct control *c);

/* control_verbs.c */
json_t *control_sample_json(const struct stall_sample *sample, const struct stall_node *node);

/* Logs a line for each value that was set and overrides a configured one or a default. */
void control_log_overrides(const struct control *c);

/* control.c: save state in the history for the next start.
 * The last save happens when the daemon no longer serves anything. */
void control_save_settings(struct control *c);
void control_save_state(struct control *c);
