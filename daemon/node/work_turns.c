/* SPDX-License-Identifier: Apache-2.0 */
#include "work_turns.h"

#include "lib/container_of.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

/* Maximum by which a user's usage may be below that of others. The user makes up for missed turns at once,
 * and others must not wait long for that. */
#define BEHIND_NS UINT64_C(500000000)

struct work_user {
	struct work_user *next; /* next in its bucket */
	struct work_user *busy_next, **busy_link;
	uint32_t uid;
	uint32_t n_lanes; /* lanes with tasks that wait or run */
	uint32_t n_running, n_paused;
	uint32_t limit;   /* maximum number of tasks that run at one time */
	uint64_t mean_ns; /* mean cost of a task */
	struct turn turn;
	struct turns turns; /* turns among the user's lanes */
	/* Lanes that may run another task. ready: a short task or a paused one; fresh: only a new long
	 * task. */
	struct turn_queue ready, fresh;
	struct turn_entry entry; /* entry in work_turns.idle */
};

void work_lane_init(struct work_lane *lane, uint32_t uid)
{
	*lane = (struct work_lane){.uid = uid, .limit = UINT32_MAX, .user_limit = UINT32_MAX};
}

static struct work_user **bucket_of(struct work_turns *t, uint32_t uid)
{
	return &t->users[uid % WORK_BUCKETS];
}

/* Forgets idle users of the bucket, but only after others have used as much: leaving and coming back must not
 * clear a debt. */
static void forget_users(const struct work_turns *t, struct work_user **bucket)
{
	for (struct work_user **link = bucket; *link;) {
		struct work_user *u = *link;

		if (u == t->fallback || u->n_lanes > 0 || (t->n_users > 0 && u->turn.used > t->turns.now)) {
			link = &u->next;
			continue;
		}
		*link = u->next;
		free(u);
	}
}

void work_turns_free(struct work_turns *t)
{
	for (uint32_t i = 0; i < WORK_BUCKETS; i++) {
		while (t->users[i]) {
			struct work_user *u = t->users[i];

			t->users[i] = u->next;
			free(u);
		}
	}
}

static struct work_user *user_of(struct work_turns *t, uint32_t uid)
{
	struct work_user **bucket = bucket_of(t, uid), *u = *bucket;

	while (u && u->uid != uid)
		u = u->next;
	if (u)
		return u;
	forget_users(t, bucket);
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	*u = (struct work_user){.next = *bucket, .uid = uid, .limit = UINT32_MAX};
	*bucket = u;
	return u;
}

int work_turns_init(struct work_turns *t, uint32_t fallback)
{
	*t = (struct work_turns){.n_workers = 1};
	t->fallback = user_of(t, fallback);
	return t->fallback ? 0 : -ENOMEM;
}

static uint32_t share_of(const struct work_turns *t)
{
	uint32_t n = t->n_users > 0 ? t->n_users : 1;

	return t->n_workers > n ? (t->n_workers + n - 1) / n : 1;
}

/* Returns false while the user has many paused tasks: each holds a process, so no further task may begin. */
static bool may_begin(const struct work_turns *t, const struct work_user *u)
{
	return u->n_paused < 2 * share_of(t);
}

/* Puts the lane into the right queue of its user after a change. */
static void lane_place(struct work_lane *lane)
{
	struct work_user *u = lane->user;

	turn_queue_remove(&lane->entry);
	if (lane->n_running >= lane->limit)
		return;
	if (lane->n[WORK_SHORT] > 0 || lane->n[WORK_PAUSED] > 0)
		turn_queue_add(&u->ready, &lane->entry, lane->turn.used);
	else if (lane->n[WORK_LONG] > 0)
		turn_queue_add(&u->fresh, &lane->entry, lane->turn.used);
}

static void user_place(struct work_turns *t, struct work_user *u)
{
	bool is_busy = u->n_running > 0 || u->n_paused > 0;

	turn_queue_remove(&u->entry);
	if (is_busy && !u->busy_link) {
		u->busy_next = t->busy;
		u->busy_link = &t->busy;
		if (u->busy_next)
			u->busy_next->busy_link = &u->busy_next;
		t->busy = u;
	} else if (!is_busy && u->busy_link) {
		*u->busy_link = u->busy_next;
		if (u->busy_next)
			u->busy_next->busy_link = u->busy_link;
		u->busy_link = NULL;
	}
	if (!is_busy && (u->ready.first || u->fresh.first))
		turn_queue_add(&t->idle, &u->entry, u->turn.used);
}

static bool is_active(const struct work_lane *lane)
{
	return lane->n_running + lane->n[WORK_SHORT] + lane->n[WORK_LONG] + lane->n[WORK_PAUSED] > 0;
}

static void place(struct work_turns *t, struct work_lane *lane)
{
	struct work_user *u = lane->user;

	lane_place(lane);
	if (!is_active(lane)) {
		lane->user = NULL;
		if (--u->n_lanes == 0)
			t->n_users--;
	}
	user_place(t, u);
}

void work_add(struct work_turns *t, struct work_lane *lane, enum work_kind kind)
{
	struct work_user *u = lane->user;

	if (!u) {
		u = user_of(t, lane->uid);
		u = u ? u : t->fallback;
		if (u->n_lanes++ == 0) {
			t->n_users++;
			turn_enter(&t->turns, &u->turn, 0);
		}
		lane->user = u;
		u->limit = lane->user_limit;
		turn_enter(&u->turns, &lane->turn, 0);
	}
	lane->n[kind]++;
	place(t, lane);
}

static struct work_lane *first_lane(const struct work_turns *t, const struct work_user *u)
{
	const struct turn_entry *ready = u->ready.first, *fresh = may_begin(t, u) ? u->fresh.first : NULL;

	if (ready && fresh)
		return container_of(fresh->used < ready->used ? fresh : ready, struct work_lane, entry);
	return ready   ? container_of(ready, struct work_lane, entry)
	       : fresh ? container_of(fresh, struct work_lane, entry)
		       : NULL;
}

static enum work_kind kind_of(const struct work_turns *t, const struct work_lane *lane)
{
	bool is_fresh = lane->n[WORK_LONG] > 0 && may_begin(t, lane->user);
	bool is_long = lane->n[WORK_PAUSED] > 0 || is_fresh;

	if (lane->n[WORK_SHORT] > 0 && (lane->was_long || !is_long))
		return WORK_SHORT;
	return lane->n[WORK_PAUSED] > 0 ? WORK_PAUSED : WORK_LONG;
}

/* Returns true if user u goes before user v. u_running, v_running: their running tasks, without the task in
 * question. */
static bool goes_first(const struct work_turns *t, const struct work_user *u, uint32_t u_running,
		       const struct work_user *v, uint32_t v_running)
{
	bool u_has_less = u_running < share_of(t), v_has_less = v_running < share_of(t);

	return u_has_less != v_has_less ? u_has_less : u->turn.used < v->turn.used;
}

/* Chooses the next task. gives: the user whose running task would give up its place for it; NULL: none. */
static bool choose(const struct work_turns *t, const struct work_user *gives, struct work_choice *ret)
{
	const struct work_user *best =
	    t->idle.first ? container_of(t->idle.first, struct work_user, entry) : NULL;

	for (const struct work_user *u = t->busy; u; u = u->busy_next) {
		if (u->n_running - (u == gives) < u->limit && first_lane(t, u) &&
		    (!best || goes_first(t, u, u->n_running, best, best->n_running)))
			best = u;
	}
	if (!best)
		return false;
	ret->lane = first_lane(t, best);
	ret->kind = kind_of(t, ret->lane);
	return true;
}

bool work_choose(const struct work_turns *t, struct work_choice *ret)
{
	return choose(t, NULL, ret);
}

static void charge(struct work_lane *lane, uint64_t ns)
{
	turn_charge(&lane->turn, ns, TURN_WEIGHT);
	turn_charge(&lane->user->turn, ns, TURN_WEIGHT);
}

uint64_t work_begin(struct work_turns *t, const struct work_choice *choice)
{
	struct work_lane *lane = choice->lane;
	struct work_user *u = lane->user;

	turn_enter(&t->turns, &u->turn, BEHIND_NS);
	turn_enter(&u->turns, &lane->turn, BEHIND_NS);
	turns_reach(&t->turns, (int64_t)u->turn.used);
	turns_reach(&u->turns, (int64_t)lane->turn.used);
	charge(lane, u->mean_ns);
	lane->n[choice->kind]--;
	lane->n_running++;
	lane->was_long = choice->kind != WORK_SHORT;
	u->n_running++;
	u->n_paused -= choice->kind == WORK_PAUSED;
	place(t, lane);
	return u->mean_ns;
}

void work_charge(struct work_lane *lane, uint64_t cost, uint64_t *charged)
{
	if (cost <= *charged || !lane->user)
		return;
	charge(lane, cost - *charged);
	*charged = cost;
	lane_place(lane);
}

bool work_is_over(const struct work_turns *t, const struct work_lane *lane)
{
	const struct work_user *u = lane->user;
	struct work_choice other;

	if (!choose(t, u, &other))
		return false;
	if (other.lane->user != u)
		return goes_first(t, other.lane->user, other.lane->user->n_running, u, u->n_running - 1);
	return other.lane == lane ? other.kind == WORK_SHORT : other.lane->turn.used < lane->turn.used;
}

/* Replaces the charged amount by the cost. Usage may go down: unsigned arithmetic wraps correctly. */
static void settle(struct work_lane *lane, uint64_t cost, uint64_t *charged)
{
	lane->turn.used += cost - *charged;
	lane->user->turn.used += cost - *charged;
	*charged = cost;
}

void work_pause(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t *charged)
{
	settle(lane, cost, charged);
	lane->n_running--;
	lane->user->n_running--;
	lane->n[WORK_PAUSED]++;
	lane->user->n_paused++;
	place(t, lane);
}

void work_end(struct work_turns *t, struct work_lane *lane, uint64_t cost, uint64_t charged)
{
	struct work_user *u = lane->user;

	settle(lane, cost, &charged);
	u->mean_ns = (u->mean_ns * 7 + cost) / 8;
	lane->n_running--;
	u->n_running--;
	place(t, lane);
}

void work_limit(struct work_turns *t, struct work_lane *lane, uint32_t limit)
{
	lane->limit = limit < 1 ? 1 : limit;
	if (lane->user)
		place(t, lane);
}

void work_limit_user(struct work_lane *lane, uint32_t limit)
{
	lane->user_limit = limit < 1 ? 1 : limit;
	if (lane->user)
		lane->user->limit = lane->user_limit;
}
