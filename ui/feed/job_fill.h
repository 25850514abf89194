/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What an analysis says of a job, as a line of the dashboard. Pure. */

struct analysis;
struct job_sample;
struct sample;

/* Leaves what an analysis does not know as it is. */
void job_fill(const struct analysis *analysis, struct job_sample *job);

/* The files and folders it read most. -ENOMEM. */
int job_fill_places(const struct analysis *analysis, const char *job, struct sample *sample);

/* The wait of its last slow step. -ENOMEM. */
int job_fill_hops(const struct analysis *analysis, const char *job, struct sample *sample);
