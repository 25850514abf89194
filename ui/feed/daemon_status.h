/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * dieseld's answers as parts of a sample. Pure; what a daemon of another version does not say, or says in
 * another form, stays unknown. Texts are the daemon's, and through it its clients': they may hold anything.
 */

#include <stddef.h>

struct error;
struct sample;

/* "diesel.status/1": the daemon, its datasets, its jobs (ids "d1", ...). now_s: since 1970. -EBADMSG: not
 * such an answer; -ENOMEM. */
int daemon_status_fill(const char *json, double now_s, struct sample *sample, struct error *err);

/* "diesel.why/1": decisions, the newest first. */
int daemon_why_fill(const char *json, double now_s, struct sample *sample, struct error *err);
