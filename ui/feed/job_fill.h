/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns an analysis of a job into parts of a sample. Pure. */

struct analysis;
struct job_sample;
struct top_sample;

/* Sets the fields that the analysis knows, and leaves the others unchanged. */
void job_fill(const struct analysis *analysis, struct job_sample *job);

/* Adds the files and folders that the job read most. 0 or -ENOMEM. */
int job_fill_places(const struct analysis *analysis, const char *job, struct top_sample *sample);

/* Adds the wake-up chain of the last slow step. 0 or -ENOMEM. */
int job_fill_hops(const struct analysis *analysis, const char *job, struct top_sample *sample);
