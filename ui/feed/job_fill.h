/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns an analysis of a job into parts of a sample. Pure. */

struct analysis;
struct job_sample;
struct top_sample;

/* Sets the fields that the analysis knows, and leaves the others unchanged. */
void job_fill(const struct analysis *analysis, struct job_sample *job);
