/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Handles the start and end of each job: logs a line, and adds to its user's totals. */

#include "daemon/cache/job.h"
#include "usage_totals.h"

struct server;

struct job_events {
	struct job_handler inner; /* the previous handler, to which events are passed on */
	struct server *server;
	struct usage_totals usage; /* usage of jobs that have ended, and the number of jobs that began */
	uv_timer_t count;
};

/* Installs itself in front of the jobs' handler. *events must outlive its use. */
void job_events_start(struct job_events *events, struct server *server);
void job_events_stop(struct job_events *events);
/* Adds the use by running jobs. */
void job_events_usage(const struct job_events *events, struct usage_totals *ret);
/* Writes the name of the script or program, without folders and arguments: a command line may hold secrets.
 */
void job_events_program(const struct job *job, char *text, size_t size);
