/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whose chunk is read next. Each storage (a file system) is shared among the users who want to read from it,
 * and a user's part among his jobs, however many datasets and sessions these have: by turns (turns.h),
 * measured in bytes and a price for each read, divided by weights. A user weighs as much as the heaviest of
 * his jobs.
 *
 * A trainer that waits goes first, but only as far as that makes up for a bounded number of bytes: who always
 * waits gets no more than his part. Within a job the nearest chunk comes first.
 *
 * What has been handed to a storage is out of our hands, so while several jobs want to read from it, no more
 * is handed to it than keeps it busy. A job that is alone with a storage may hand it as much as it likes.
 * Reads that do not come back stop counting after a while: what hangs for one does not hang for the others.
 *
 * The operator may limit what is read of all storages together. While that is what reads wait for, turns are
 * taken by all jobs together, whichever storages they want.
 *
 * Nothing here reads a clock or blocks. Loop thread only.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define READ_PRICE_BYTES  (UINT64_C(256) << 10) /* of a read, whatever its size: opening, seeking */
#define READ_URGENT_BYTES (UINT64_C(32) << 20)  /* that a trainer's wait is worth, at TURN_WEIGHT */
#define READ_STUCK_NS     UINT64_C(1000000000)
#define READ_OP_BYTES     (UINT64_C(1) << 20) /* a storage gets no larger requests (reader_run.c) */
#define READ_BURST_NS     UINT64_C(100000000) /* that a limit lets reads run ahead of it */
/* Reads under way on a storage that several jobs want: as many as one dataset's reader takes for each user
 * (or for each job, if they are one user's), but no more than these, and of these bytes unless there are very
 * few. */
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
	struct read_lanes *lanes; /* of the job */
	dev_t storage;
	uint32_t uid;
	uint32_t weight; /* of the job; TURN_WEIGHT is the usual one */
	uint64_t bytes;
	uint32_t distance;    /* chunks until it is needed; 0: by the next batch */
	bool waits;           /* the trainer has nothing left and waits for this chunk */
	uint64_t last_served; /* a number that grows: the session's latest read */
};

/* A read under way. The caller's memory, until read_turns_end(). */
struct read_ticket {
	struct read_ticket *next;
	struct read_lane *lane; /* NULL: not under way */
	struct read_lane *node; /* of all storages; NULL: there was no limit */
	uint64_t begin_ns, bytes;
};

int read_turns_new(struct read_turns **ret);
/* Lanes may outlive it. Accepts NULL. */
void read_turns_free(struct read_turns *t);

/* Limits what is read of all storages together, from now on. 0: not at all. A single read may be larger than
 * what the limit allows in a second; then nothing else is read until it is paid for. */
void read_turns_limit(struct read_turns *t, uint64_t bytes_per_s, uint64_t ops_per_s);
void read_turns_limits(const struct read_turns *t, uint64_t *ret_bytes_per_s, uint64_t *ret_ops_per_s);
/* For how long reads that could have begun were kept back by the limit alone, in all. */
uint64_t read_turns_limited_ns(const struct read_turns *t, uint64_t now_ns);

/* Returns which of the wants is read next, or -1: none may be, now. *ret_again_ns: when that may have changed
 * without a read that has ended; UINT64_MAX: never. */
long read_turns_pick(struct read_turns *t, const struct read_want *wants, size_t n, uint64_t now_ns,
		     uint64_t *ret_again_ns);

/* A read begins, whoever decided that; its bytes are charged. Without memory it is not counted. */
void read_turns_begin(struct read_turns *t, const struct read_want *want, uint64_t now_ns,
		      struct read_ticket *ticket);
/* The read turned out to be of so many bytes more. */
void read_turns_charge(const struct read_ticket *ticket, uint32_t weight, uint64_t bytes);
/* It is over. Nothing happens if it is not under way. */
void read_turns_end(struct read_ticket *ticket);

/* The job ends; none of its reads may be under way. */
void read_lanes_free(struct read_lanes *lanes);
