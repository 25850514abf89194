/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Prefetches files for jobs that do not use dieseld: PyTorch's DataLoader hands indices to its workers some
 * batches ahead. This module learns which files an index opens while workers open them; from then on it reads
 * these files into the page cache before a worker needs them.
 *
 *   assist_fork() before the first thread -> assist_start() -> assist_stop() -> assist_free()
 *
 * No process with more rights than the job reads anything that the job wrote: see assist_message.h.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/helpers/spawn.h"

#define ASSIST_JOBS_MAX   64
#define ASSIST_A_USER_MAX 16 /* maximum for one user who is not an administrator (admin.h) */

struct error;
struct assist;

struct assist_figures {
	uint64_t batches, samples;
	uint64_t known; /* indices whose files are known */
	uint64_t hits,
	    misses; /* known indices that opened the same files again (hits), or other files (misses) */
	uint64_t files, bytes; /* read ahead */
	uint64_t failed;       /* files that could not be read ahead */
};

enum assist_state {
	ASSIST_LOOKS,  /* measures what workers wait for */
	ASSIST_LEARNS, /* workers wait for files: learns which files an index opens, also in a new data set */
	ASSIST_TRIES,  /* measures turns of batches with and without reading ahead */
	ASSIST_HELPS,  /* reading ahead helps, and continues */
	ASSIST_RESTS,  /* nothing to gain, for now */
	ASSIST_STOPPED, /* final state: the job does not open files as this module assumes */
	ASSIST_N_STATES,
};

const char *assist_state_name(enum assist_state state);

/* One job. If pid is 0, the message is about all jobs. `why` is then the reason for which no jobs can be
 * assisted, or "" if they can from now on; `ended` means that this no longer changes. */
struct assist_job {
	int64_t pid;
	uint32_t uid;
	uint32_t state; /* enum assist_state */
	uint32_t ended;
	uint32_t charged; /* 1: pages that are read ahead are charged to the job's control group */
	uint64_t lost;    /* records of all jobs' batches that were lost because a buffer was full */
	struct assist_figures figures;
	char name[16];
	char why[240];
};

/* Forks the keeper, before the first thread. With observe, nothing is read ahead: the keeper only reports
 * what workers wait for. -EPERM: not root. */
int assist_fork(bool observe, struct fork_server *ret_keeper, struct error *err);
/* Takes over the keeper. 0 or a negative errno. */
int assist_start(uv_loop_t *loop, struct fork_server *keeper, struct assist **ret);
void assist_stop(struct assist *a);
void assist_free(struct assist *a);

/* Returns the reason for which nothing is read ahead; "" if files are read ahead. */
const char *assist_problem(const struct assist *a);
/* Returns the i-th job, or NULL. */
const struct assist_job *assist_job_at(const struct assist *a, uint32_t i);
/* Returns the job's state as one word. */
const char *assist_job_state(const struct assist_job *job);
/* Returns the files and bytes read ahead for all jobs since the start. */
void assist_totals(const struct assist *a, uint64_t *ret_files, uint64_t *ret_bytes);
