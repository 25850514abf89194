/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Converts dieseld's answers into parts of a sample. Pure. Fields that a daemon of another version omits, or
 * sends in another form, stay unknown. Texts come from the daemon's clients, so they may contain any bytes.
 */

#include <stddef.h>

struct error;
struct top_sample;

/* Reads "diesel.status/1": the daemon, its datasets, its jobs (ids "d1", ...), or "diesel.why/1": decisions,
 * the newest first. now_s counts from 1970. -EBADMSG: in neither format; -ENOMEM. */
int daemon_answer_fill(const char *json, double now_s, struct top_sample *sample, struct error *err);

/* Sets the job's verdict from the shares that the daemon reported. */
struct job_sample;
void daemon_job_judge(struct job_sample *job);
