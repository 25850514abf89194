/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The control loop that connects sensor, tuner and serving: once per second the sensor delivers samples,
 * tuner_decide() chooses each job's knobs, the jobs get them, and all of it is recorded (control_private.h,
 * history.h). It has no timer of its own: without jobs the sensor is silent, and so is this.
 *
 *   control_new() -> server_start() with server.control -> control_start() -> ... -> control_free()
 *
 * The operator sets the mode: on; dry-run (decisions are recorded, but only the operator's pins and limits
 * are carried out); off (only pins and limits are decided).
 *
 * Loop thread only.
 */

#include <jansson.h>

#include "history/history.h"
#include "daemon/serve/serving_knobs.h"
#include "settings.h"

struct control;
struct sensor_handler;
struct assist;
struct sensor;
struct serving;

struct control_options {
	struct settings settings;   /* as configured, without values set while running */
	struct serving_knobs knobs; /* the values without tuning */
	const char *socket;         /* path of the daemon's socket, for the answers */
	const char *history;        /* path of the history's file; NULL: in memory only */
	uint64_t history_max_bytes;
};

/* Opens the history, and restores from it the values set, pinned and learnt before a restart. A history that
 * cannot be opened costs one warning; only -ENOMEM fails. */
int control_new(const struct control_options *options, struct control **ret);
/* Borrows the serving, installs the handler of its jobs, and borrows the sensor (NULL: no samples will
 * come). */
void control_start(struct control *c, struct serving *serving, struct sensor *sensor);
/* Makes `why` and `jobs` report the files that assist prefetches. Borrowed. */
void control_assist(struct control *c, const struct assist *assist);
/* Returns the handler for the sensor. */
struct sensor_handler control_handler(struct control *c);
/* Applies a configuration that was read again. Values set while running stay set. */
void control_reconfigure(struct control *c, const struct settings *configured,
			 const struct serving_knobs *knobs);
/* Saves the state that the next start needs, and writes queued entries. Accepts NULL. */
void control_free(struct control *c);

#define CONTROL_N_RULES (TUNER_RULE_IDLE + 1)
/* Returns how many decisions of this rule were carried out since the daemon started. */
uint64_t control_n_applied(const struct control *c, enum tuner_rule rule);

/* Returns true if a value set while running overrides the configured one. For metrics. */
bool control_is_overridden(const struct control *c, enum wire_setting_key key);
/* Returns false if decisions are kept in memory only; *ret then holds zeros and the reason. */
bool control_history_status(const struct control *c, struct history_status *ret);

/* The user who sends a request. Root and the daemon's own user see and may change everything; others see
 * their own jobs. */
struct control_viewer {
	uint32_t uid;
	bool all;
};

struct control_viewer control_viewer_of(uint32_t uid);

/* Carries out SET. *text (malloc'ed) lists the values now in force. -EPERM, -ENOENT, -EINVAL,
 * -EOPNOTSUPP... */
int control_set(struct control *c, const struct control_viewer *viewer, const struct wire_set *message,
		char **ret_text, struct error *err);
/* Answers WHY with malloc'ed text. -ENOENT: no such job. */
int control_why(struct control *c, const struct control_viewer *viewer, const struct wire_why *message,
		char **ret_text, struct error *err);
/* Returns the report on this node's jobs to other nodes, for diesel-top --nodes: JSON of at most max_bytes,
 * malloc'ed. Jobs that do not fit are counted as omitted. NULL: no memory. */
char *control_report(const struct control *c, double uptime_s, size_t max_bytes);
/* Returns the answer to JOBS; NULL: no memory. */
char *control_jobs(struct control *c, const struct control_viewer *viewer);
/* Return the members "tune" and "jobs" of STATUS. */
json_t *control_tune_json(struct control *c);
/* Returns "reads" of STATUS and WHY: how the jobs share storage. */
struct cache;
json_t *control_reads_json(const struct cache *cache);
json_t *control_jobs_json(struct control *c, const struct control_viewer *viewer);
