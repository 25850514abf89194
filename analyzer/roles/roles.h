/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Roles of a job's threads, decided by behaviour, never by name: names are inherited, changed and differ
 * between versions.
 *
 *   trainer         most backward passes; without any, the thread with most calls of a loader's next(),
 *                   libdiesel's and PyTorch's counted alike, or its process's main thread if that waits for
 *                   it; without these, the root's main thread, unless it never waits for a GPU: then the
 *                   main thread that does so most often. Among equals the first in the timeline. An
 *                   override wins.
 *   worker          main thread of another process of the job that reads a pipe which the trainer's process
 *                   writes (indices) and whose process writes a result pipe; none if most next() of
 *                   PyTorch's DataLoader make the batch themselves: then such processes do something else,
 *                   e.g. compile
 *   result pipe     a pipe from a worker's process to the trainer's, which reads it at least three times and
 *                   never to its end; a loader created again each epoch has a new one each time (the kernel
 *                   does not reuse the inode numbers of pipes)
 *   loader          the result pipes that feed steps in turn, with the workers that write them: a
 *                   DataLoader's iterator has one pipe, other loaders have one per worker
 *   reader          the thread that reads most results: the trainer, or the pin-memory thread
 *   hand-off thread all other threads of a worker's process, e.g. those that write the result pipe or answer
 *                   on a socket
 *   loader thread   without workers: another thread of the trainer's process that reads files in at least
 *                   two steps (without steps, see handovers.h) and does not write more than it reads, or is
 *                   mostly woken by loader threads.
 *                   There are none unless they end sleeps of the trainer, and at least a quarter as many
 *                   as the steps in which the trainer reads files itself. If next() makes the batch itself,
 *                   only sleeps within it count, and there must be at least half as many as calls of next()
 */

#include "analyzer/timeline/gil.h"
#include "analyzer/timeline/timeline.h"

enum role {
	ROLE_OTHER,
	ROLE_TRAINER,
	ROLE_HELPER, /* another thread of the trainer's process: OpenMP, autograd, pin-memory, ... */
	ROLE_WORKER,
	ROLE_HANDOFF,
	ROLE_LOADER,
};

struct roles {
	const struct timeline_thread *trainer;
	uint32_t n_trainers; /* number of threads that do backward passes */
	/* Mark that ends a step if the trainer does no backward pass: MARK_NEXT_END if it has any, else
	 * MARK_BATCH_END. 0: it does backward passes, or has no marks. */
	uint32_t step_mark;
	size_t n_own_batches;     /* calls of next() that make the batch themselves; 0 unless most do */
	uint64_t *results;        /* inodes of result pipes, ascending */
	uint32_t *result_loaders; /* loader of each result pipe, from 1 on; 0: the pipe feeds no step */
	size_t n_results;         /* 0: no worker processes */
	const struct timeline_thread *reader; /* reader of the result pipes; NULL: none */
	const struct timeline_thread **workers;
	uint64_t *started_ns;     /* per worker: its first look for an index, which ends its start-up */
	uint32_t *worker_loaders; /* loader of each worker, from 1 on; 0: feeds no step (validation) */
	size_t n_workers;
	const struct timeline_thread **loaders;
	size_t n_loaders;
	bool fed; /* processes other than workers write the data that the trainer reads (roles_feeders.h) */
	struct gil gil;
	uint8_t *of; /* enum role of timeline->threads[i] */
};

/* root_tgid and trainer_tid: 0 if not known. In a job without threads, trainer is NULL. -ENOMEM. */
int roles_find(const struct timeline *timeline, uint32_t root_tgid, uint32_t trainer_tid,
	       struct roles *ret_roles);
void roles_free(struct roles *roles);

/* Returns the index of the pipe in results; n_results: not a result pipe. */
size_t roles_result(const struct roles *roles, uint64_t inode);
bool roles_is_result(const struct roles *roles, uint64_t inode);

enum role role_of(const struct timeline *timeline, const struct roles *roles,
		  const struct timeline_thread *thread);

/* Returns the time when the start-up of the thread's worker process ends; 0: it is in no worker process. */
uint64_t roles_started_ns(const struct roles *roles, const struct timeline_thread *thread);

/* Returns the role in words: "worker", "worker's hand-off", ... */
const char *role_name(enum role role);
