/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where reading ahead is held back, because a job writes a checkpoint there: on that file system, for the
 * jobs of the same user, and for a bounded time. What somebody waits for is never held back; nor is what
 * other users read, whom nobody's writes may hold up. Pure.
 */

#include <stdint.h>
#include <sys/types.h>

#define READ_HOLDS_MAX     64                    /* at one time; more are not noted */
#define READ_HOLD_AFTER_NS UINT64_C(2500000000)  /* after writing was seen last: the disk is still busy */
#define READ_HOLD_MOST_NS  UINT64_C(10000000000) /* of one checkpoint */

struct read_hold {
	uint32_t uid;
	dev_t storage;
	uint64_t job;                  /* that writes */
	uint64_t begin_ns, written_ns; /* when writing was seen first and last; 0: free */
};

struct read_holds {
	struct read_hold all[READ_HOLDS_MAX];
};

/* The job was seen to write much. */
void read_holds_note(struct read_holds *h, uint32_t uid, dev_t storage, uint64_t job, uint64_t now_ns);
/* Until when reading ahead is held back, and for whose checkpoint; 0: it is not. */
uint64_t read_holds_until(const struct read_holds *h, uint32_t uid, dev_t storage, uint64_t now_ns,
			  uint64_t *ret_job);
