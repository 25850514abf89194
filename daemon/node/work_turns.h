/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides which user's task a worker runs next. Workers are shared among the users who want one, and a user's
 * share among his lanes (jobs), however many there are. Both go by turns (turns.h), measured by the cost of
 * tasks. At its start a task is charged the mean cost of the user's tasks, and later its actual cost so far.
 *
 * A long task may be paused: it keeps its resources, and continues at a later turn of its lane. While others
 * have tasks waiting, no user gets more workers than his share; otherwise he may have all.
 *
 * No function here reads a clock, blocks or locks (pool.h does).
 */

#include "turn_queue.h"
#include "turns.h"

#define WORK_BUCKETS 64

struct work_user;

enum work_kind {
	WORK_SHORT,  /* runs to its end */
	WORK_LONG,   /* may be paused */
	WORK_PAUSED, /* a long task that was begun */
	WORK_N_KINDS,
};

/* Allocated by the caller; must live until none of its tasks waits or runs. */
struct work_lane {
	uint32_t uid;
	uint32_t limit;      /* maximum number of its tasks that run at one time */
	uint32_t user_limit; /* limit for all tasks of its user together; equal for all lanes of one user */
	uint32_t n[WORK_N_KINDS], n_running;
	bool was_long; /* kind of its last task: short and long tasks alternate, so that neither kind waits
			  for all tasks of the other */
	struct turn turn;
	struct work_user *user; /* NULL: no task of the lane waits or runs */
	struct turn_entry entry;
};

struct work_turns {
	uint32_t n_workers;
	uint32_t n_users; /* users with tasks that wait or run */
	struct turns turns;
	struct turn_queue idle; /* users without running or paused tasks */
	struct work_user *busy; /* all other users; at most as many as there are running and paused tasks */
	struct work_user *users[WORK_BUCKETS];
	struct work_user *fallback; /* the user to charge if memory for a further user's record runs out */
};

struct work_choice {
	struct work_lane *lane;
	enum work_kind kind;
};

void work_lane_init(struct work_lane *lane, uint32_t uid); /* no limit */
/* fallback: uid to charge for tasks of a user who cannot be recorded for lack of memory. -ENOMEM. */
int work_turns_init(struct work_turns *t, uint32_t fallback);
/* Frees the users. Does not access the lanes. */
void work_turns_free(struct work_turns *t);

/* Records that one more task waits. */
void work_add(struct work_turns *t, struct work_lane *lane, enum work_kind kind);
/* Chooses the user and task that run next. Returns false if no waiting task may run. */
bool work_choose(const struct work_turns *t, struct work_choice *ret);
/* Records that the chosen task runs. Returns its expected cost, which is charged. */
uint64_t work_begin(struct work_turns *t, const struct work_choice *choice);
/* Charges a task up to its cost so far. *charged: the amount charged for it so far, at first from
 * work_begin(); 0 for work outside of tasks. Charges nothing if no task of the lane waits or runs: a lane
 * that comes back gets no credit anyway. */
void work_charge(struct work_lane *lane, uint64_t cost, uint64_t *charged);
/* Returns true if a running long task should pause because another task's turn comes first. */
bool work_is_over(const struct work_turns *t, const struct work_lane *lane);
/* Records that a long task pauses. cost: its cost so far. */
void work_pause(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t *charged);
/* Records that a task has ended. cost: its total cost. */
void work_end(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t charged);
void work_limit(struct work_turns *t, struct work_lane *lane, uint32_t limit);
void work_limit_user(struct work_lane *lane, uint32_t limit);
