/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes that a recording is of: some that are named, or all that are in a control group or join it
 * while it is recorded. For named processes it tells when all have ended.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct error;
struct source;

#define RECORD_ROOTS_MAX 64

struct record_roots {
	pid_t *tgids;
	int *fds; /* pidfds; -1: it ended */
	size_t n, n_gone;
	char *cgroup; /* its folder; NULL: named processes */
	pid_t *members;
	size_t n_members;
	bool any; /* the group has had a process */
};

/* Call it once for each process, which is part of the job already. -errno. */
int record_roots_add(struct record_roots *roots, pid_t tgid, struct error *err);
/* path: as the user wrote it. */
int record_roots_set_cgroup(struct record_roots *roots, const char *path, struct error *err);
void record_roots_free(struct record_roots *roots);

/* Tells that a process has ended (EVENT_EXIT of its main thread). */
void record_roots_exit(struct record_roots *roots, pid_t tgid);
bool record_roots_all_gone(const struct record_roots *roots);

/* Makes processes that joined the group since the last call part of the job. Nothing to do without a group.
 * *ret_ended: the group had processes and has none left. -ENOMEM, or the source's failure. */
int record_roots_join(struct record_roots *roots, struct source *source, bool *ret_ended, struct error *err);
