/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Begin and end of each job: a line in the log for each, and what its user has used. */

#include "daemon/cache/job.h"
#include "usage_totals.h"

struct server;

struct job_events {
	struct job_handler inner; /* whose the events were before */
	struct server *server;
	struct usage_totals usage; /* of jobs that have ended, and how many began */
	uv_timer_t count;
};

/* Puts itself before the handler that jobs have. *events must stay. */
void job_events_start(struct job_events *events, struct server *server);
void job_events_stop(struct job_events *events);
/* Adds what the jobs have used that run now. */
void job_events_usage(const struct job_events *events, struct usage_totals *ret);
/* The script or program, without folders and arguments: a command line may hold secrets. */
void job_events_program(const struct job *job, char *text, size_t size);
