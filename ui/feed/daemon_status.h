/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * dieseld's answers as parts of a sample. Pure. What a daemon of another version does not say, or says in
 * another form, stays unknown. Texts come from the daemon, and through it from its clients, so they may hold
 * anything.
 */

#include <stddef.h>

struct error;
struct top_sample;

/* Takes "diesel.status/1": the daemon, its datasets, its jobs (ids "d1", ...). now_s counts from 1970.
 * -EBADMSG: not such an answer; -ENOMEM. */
int daemon_status_fill(const char *json, double now_s, struct top_sample *sample, struct error *err);

/* Takes "diesel.why/1": decisions, the newest first. Errors as daemon_status_fill(). */
int daemon_why_fill(const char *json, double now_s, struct top_sample *sample, struct error *err);

/* The verdict, by its shares as the daemon has them. */
struct job_sample;
void daemon_job_judge(struct job_sample *job);
