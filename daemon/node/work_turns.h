/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whose task a worker does next. Workers are shared among the users who want one, and a user's part among his
 * lanes (jobs), however many these are: by turns (turns.h), measured in what tasks cost. A task's cost is
 * charged while it runs: before it begins, what the user's tasks take in the mean, and then what it has taken
 * so far.
 *
 * A long task may be paused: it keeps what it holds, and goes on at another turn of its lane. While others
 * have tasks waiting, no user has more workers than his share of them; otherwise he may have all.
 *
 * Nothing here reads a clock, blocks or locks (pool.h does).
 */

#include "turn_queue.h"
#include "turns.h"

#define WORK_BUCKETS 64

struct work_user;

enum work_kind {
	WORK_SHORT,  /* runs to its end */
	WORK_LONG,   /* may be paused */
	WORK_PAUSED, /* a long one that was begun */
	WORK_N_KINDS,
};

/* The caller's memory, until nothing of it waits or runs. */
struct work_lane {
	uint32_t uid;
	uint32_t limit;      /* how many of its tasks run at one time */
	uint32_t user_limit; /* how many of its user's do; the same for all lanes of one user */
	uint32_t n[WORK_N_KINDS], n_running;
	bool was_long; /* the last one: short and long ones alternate, so that neither waits for all of the
			  others */
	struct turn turn;
	struct work_user *user; /* NULL: nothing waits or runs */
	struct turn_entry entry;
};

struct work_turns {
	uint32_t n_workers;
	uint32_t n_users; /* with tasks that wait or run */
	struct turns turns;
	struct turn_queue idle; /* users with none that run or are paused */
	struct work_user *busy; /* the others: no more than there are such tasks */
	struct work_user *users[WORK_BUCKETS];
	struct work_user *fallback; /* whose tasks they are where there is no memory to note another user */
};

struct work_choice {
	struct work_lane *lane;
	enum work_kind kind;
};

void work_lane_init(struct work_lane *lane, uint32_t uid); /* no limit */
/* fallback: the uid whose tasks those are for which there is no memory to note another user. -ENOMEM. */
int work_turns_init(struct work_turns *t, uint32_t fallback);
/* Lanes are not looked at any more. */
void work_turns_free(struct work_turns *t);

/* One more task waits. */
void work_add(struct work_turns *t, struct work_lane *lane, enum work_kind kind);
/* Whose turn it is. Returns false if nothing that waits may run. */
bool work_choose(const struct work_turns *t, struct work_choice *ret);
/* It runs. Returns what it is expected to cost, which is charged. */
uint64_t work_begin(struct work_turns *t, const struct work_choice *choice);
/* It has cost so much. *charged: what is charged for it, from work_begin() on; 0 for what was no task. Where
 * nothing of the lane waits or runs, nothing is charged: who comes again begins behind the others anyway. */
void work_charge(struct work_lane *lane, uint64_t cost, uint64_t *charged);
/* Returns true if a long task that runs is to be paused, since another one's turn comes first. */
bool work_is_over(const struct work_turns *t, const struct work_lane *lane);
/* It has cost so much by now. */
void work_pause(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t *charged);
/* It has ended, and has cost so much in all. */
void work_end(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t charged);
void work_limit(struct work_turns *t, struct work_lane *lane, uint32_t limit);
void work_limit_user(struct work_lane *lane, uint32_t limit);
