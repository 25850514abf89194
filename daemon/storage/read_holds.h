/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Pauses prefetch while a job writes a checkpoint: on that file system, for jobs of the same user, and for a
 * bounded time. Reads that a batch waits for are never paused, nor are those of other users, who must not
 * suffer from this user's writes. Pure.
 *
 * Writes are seen (daemon/sense/writes.h), or reported by the job itself (struct ring_checkpoints), which may
 * claim anything.
 */

#include <stdint.h>
#include <sys/types.h>

#define READ_HOLDS_MAX     64                    /* limit on simultaneous holds; more are ignored */
#define READ_HOLDS_OF_USER 8                     /* limit on one user's */
#define READ_HOLD_AFTER_NS UINT64_C(2500000000)  /* length of the pause after the last write seen */
#define READ_HOLD_MOST_NS  UINT64_C(10000000000) /* limit on the pause for one checkpoint */

struct read_hold {
	uint32_t uid;
	dev_t storage;
	uint64_t job;                  /* the writing job */
	uint64_t begin_ns, written_ns; /* times of the first and the last write seen; 0: free */
};

struct read_holds {
	struct read_hold all[READ_HOLDS_MAX];
};

/* Records that the job is writing a lot. */
void read_holds_note(struct read_holds *h, uint32_t uid, dev_t storage, uint64_t job, uint64_t now_ns);
/* Records that the job's checkpoint on this storage is written. */
void read_holds_end(struct read_holds *h, uint32_t uid, dev_t storage, uint64_t job);
/* Returns the time until which prefetch is paused, and for whose checkpoint. 0: not paused. */
uint64_t read_holds_until(const struct read_holds *h, uint32_t uid, dev_t storage, uint64_t now_ns,
			  uint64_t *ret_job);
