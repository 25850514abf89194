/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files that write metrics share. */

#include <stdint.h>
#include <stdio.h>

#include "metrics.h"

void metrics_head(FILE *text, const char *name, const char *type, const char *help);
void metrics_number(FILE *text, const char *name, const char *type, const char *help, uint64_t value);

/* metrics_jobs.c: figures of each job. */
void metrics_jobs_text(FILE *text, const struct metrics_sources *sources);
/* metrics_service.c: figures of the process and of its service. */
void metrics_service_text(FILE *text, const struct metrics_sources *sources);
/* metrics_users.c: totals of users. */
void metrics_users_text(FILE *text, const struct job_events *events);
/* metrics_node.c: figures of the node. */
void metrics_node_text(FILE *text, const struct metrics_sources *sources);
