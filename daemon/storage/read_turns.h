/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which job's chunk is read next. Each storage (a file system) is shared among the users who read
 * from it, and a user's part among the user's jobs, no matter how many datasets and sessions these have.
 * Sharing is by turns (turns.h), measured in bytes plus a price per read, divided by weights. A user weighs
 * as much as the heaviest of the user's jobs.
 *
 * A trainer that waits goes first, but only as far as that is worth a bounded number of bytes: a job that
 * always waits gets no more than its part. Within a job the nearest chunk is read first.
 *
 * Reads that were submitted to a storage can no longer be reordered. So while several jobs read from a
 * storage, only as many reads are submitted as keep it busy. A job that is the only one on a storage may
 * submit as many as it likes. Reads that do not return stop counting after READ_STUCK_NS, so that a read that
 * hangs for one job does not block the others.
 *
 * The operator may limit the reads of all storages together. While reads wait for that limit, all jobs take
 * turns together, whichever storage they use.
 *
 * Nothing here reads a clock or blocks. Loop thread only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define READ_PRICE_BYTES  (UINT64_C(256) << 10) /* added to each read of any size, for opening and seeking */
#define READ_URGENT_BYTES (UINT64_C(32) << 20)  /* value of a trainer's wait, in bytes at TURN_WEIGHT */
#define READ_STUCK_NS     UINT64_C(1000000000)
#define READ_OP_BYTES     (UINT64_C(1) << 20) /* size of the largest request to a storage (reader_run.c) */
#define READ_BURST_NS     UINT64_C(100000000) /* maximum time by which reads may run ahead of a limit */
/* Limits on reads in progress on a storage that several jobs use. READER: reads per user (per job, if one
 * user has them all), as many as one dataset's reader takes. MOST: reads in total. BYTES: bytes in total,
 * which does not apply below READER reads. */
#define READ_DEPTH_READER 4
#define READ_DEPTH_MOST   16
#define READ_DEPTH_BYTES  (UINT64_C(64) << 20)

struct read_turns;
struct read_lane;

/* A job's lanes, one for each storage that it reads from. Belongs to the job. */
struct read_lanes {
	struct read_lane *first;
};

/* A chunk that could be read now. */
struct read_want {
	struct read_lanes *lanes; /* the job's lanes */
	dev_t storage;
	uint32_t uid;
	uint32_t weight; /* the job's weight; usually TURN_WEIGHT */
	uint64_t bytes;
	uint32_t distance;    /* chunks until it is needed; 0: by the next batch */
	bool waits;           /* the trainer has no batch left and waits for this chunk */
	uint64_t last_served; /* sequence number of the session's latest read */
};

/* A read in progress. The caller owns the memory, which must stay valid until read_turns_end(). */
struct read_ticket {
	struct read_ticket *next;
	struct read_lane *lane; /* NULL: no read in progress */
	struct read_lane *node; /* the job's lane for all storages together; NULL: there was no limit */
	uint64_t begin_ns, bytes;
};

int read_turns_new(struct read_turns **ret);
/* Frees the turns; lanes may outlive them. Accepts NULL. */
void read_turns_free(struct read_turns *t);

/* Limits the reads of all storages together, from now on. 0: no limit. A single read may be larger than the
 * limit of one second; then no other read begins until it is paid for. */
void read_turns_limit(struct read_turns *t, uint64_t bytes_per_s, uint64_t ops_per_s);
void read_turns_limits(const struct read_turns *t, uint64_t *ret_bytes_per_s, uint64_t *ret_ops_per_s);
/* Returns the total time for which only the limit kept back reads that could have begun. */
uint64_t read_turns_limited_ns(const struct read_turns *t, uint64_t now_ns);

/* Returns the index of the want to read next; -1: none now. *ret_again_ns: when this may change without
 * the end of a read; UINT64_MAX: never. */
long read_turns_pick(struct read_turns *t, const struct read_want *wants, size_t n, uint64_t now_ns,
		     uint64_t *ret_again_ns);

/* Counts a read that begins, whether read_turns_pick() chose it or not, and charges its bytes. If memory runs
 * out, the read is not counted. */
void read_turns_begin(struct read_turns *t, const struct read_want *want, uint64_t now_ns,
		      struct read_ticket *ticket);
/* Charges `bytes` more for a read that turned out to be larger. */
void read_turns_charge(const struct read_ticket *ticket, uint32_t weight, uint64_t bytes);
/* Ends a read. Does nothing if it is not in progress. */
void read_turns_end(struct read_ticket *ticket);

/* Frees a job's lanes. None of its reads may be in progress. */
void read_lanes_free(struct read_lanes *lanes);
