/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reading ahead for jobs that know nothing of dieseld: PyTorch's DataLoader hands indices to its workers some
 * batches ahead. Which files an index opens is learnt as workers open them; from then on these files are read
 * into the page cache before the worker comes to them.
 *
 *   assist_fork() before the first thread -> assist_start() -> assist_stop() -> assist_free()
 *
 * Nothing that a job wrote is looked at by a process that may do more than the job: see assist_message.h.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/helpers/spawn.h"

#define ASSIST_JOBS_MAX   64
#define ASSIST_A_USER_MAX 16 /* of these, jobs of one user who is no administrator (admin.h) */

struct error;
struct assist;

struct assist_figures {
	uint64_t batches, samples;
	uint64_t known;        /* indices whose files are known */
	uint64_t hits, misses; /* known indices that opened these files, or others */
	uint64_t files, bytes; /* read ahead */
	uint64_t failed;       /* could not be read ahead */
};

/* One job. Or pid is 0: why there are none, if not "": there may be from now on; ended: that is for good. */
struct assist_job {
	int64_t pid;
	uint32_t uid;
	uint32_t state; /* enum assist_state */
	uint32_t ended;
	uint32_t charged; /* what is read ahead is charged to the job's control group */
	uint64_t lost;    /* records of batches that found no space, of all jobs */
	struct assist_figures figures;
	char name[16];
	char why[240];
};

/* observe: nothing is read ahead; what workers wait for is looked at, and said. */
int assist_fork(bool observe, struct fork_server *ret_keeper, struct error *err);
/* Takes the keeper over. */
int assist_start(uv_loop_t *loop, struct fork_server *keeper, struct assist **ret);
void assist_stop(struct assist *a);
void assist_free(struct assist *a);

/* Why there is no reading ahead; "": there is. */
const char *assist_problem(const struct assist *a);
/* The i-th job, or NULL. */
const struct assist_job *assist_job_at(const struct assist *a, uint32_t i);
/* In a word. */
const char *assist_job_state(const struct assist_job *job);
/* Of all jobs there ever were: files and bytes read ahead. */
void assist_totals(const struct assist *a, uint64_t *ret_files, uint64_t *ret_bytes);
