/* SPDX-License-Identifier: Apache-2.0 */
#include "read_turns.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/node/turns.h"
#include "lib/list.h"

struct read_user {
	struct read_user *next;
	struct read_storage *storage;
	uint32_t uid;
	uint32_t n_lanes;
	struct turn turn;
	struct turns turns; /* turns of the user's jobs */
	/* fields below: valid if `round` is the current round */
	uint64_t round;
	uint32_t weight; /* the largest weight of the user's jobs */
	uint32_t n_reads;
	bool waits;
};

struct read_storage {
	struct read_storage *next;
	struct read_turns *owner;
	dev_t device;
	struct read_user *users;
	uint32_t n_lanes;
	struct turns turns; /* between users */
	struct read_ticket *tickets;
	/* fields below: valid if `round` is the current round */
	uint64_t round;
	uint32_t n_users, n_jobs;
	uint32_t n_reads;
	uint64_t bytes;
	uint64_t again_ns;
};

struct read_lane {
	struct read_lane *next; /* next in its job's list */
	struct read_user *user;
	struct turn turn;
	/* fields below: valid if `round` is the current round */
	uint64_t round;
	uint32_t weight;
	uint32_t n_reads;
	bool waits;
};

struct read_turns {
	struct read_storage *storages; /* with a limit, one more entry stands for all storages: NODE */
	uint64_t round;
	uint64_t bytes_per_s, ops_per_s; /* 0: no limit */
	uint64_t paid_ns;                /* time at which the limit has paid for all reads begun so far */
	uint64_t limited_since_ns, limited_ns;
	bool let_go;
};

#define NODE ((dev_t)-1)

int read_turns_new(struct read_turns **ret)
{
	struct read_turns *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	*ret = t;
	return 0;
}

/* Forgets users without jobs, once other users have used as much: ending jobs must not clear a debt. */
static void forget_users(struct read_storage *s)
{
	for (struct read_user **link = &s->users; *link;) {
		struct read_user *u = *link;

		if (u->n_lanes > 0 || (s->n_lanes > 0 && u->turn.used > s->turns.now)) {
			link = &u->next;
			continue;
		}
		*link = u->next;
		free(u);
	}
}

static void forget_storage(struct read_storage *s)
{
	struct read_turns *t = s->owner;

	forget_users(s);
	if (s->users)
		return;
	LL_DELETE(t->storages, s);
	free(s);
	if (t->let_go && !t->storages)
		free(t);
}

void read_turns_free(struct read_turns *t)
{
	if (!t)
		return;
	t->let_go = true;
	if (!t->storages)
		free(t);
}

void read_lanes_free(struct read_lanes *lanes)
{
	while (lanes->first) {
		struct read_lane *lane = lanes->first;
		struct read_user *u = lane->user;

		lanes->first = lane->next;
		free(lane);
		u->n_lanes--;
		u->storage->n_lanes--;
		forget_storage(u->storage);
	}
}

static struct read_storage *storage_of(struct read_turns *t, dev_t device)
{
	struct read_storage *s = t->storages;

	while (s && s->device != device)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = (struct read_storage){.next = t->storages, .owner = t, .device = device};
	t->storages = s;
	return s;
}

static struct read_user *user_of(struct read_storage *s, uint32_t uid)
{
	struct read_user *u = s->users;

	while (u && u->uid != uid)
		u = u->next;
	if (u)
		return u;
	u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	*u = (struct read_user){.next = s->users, .storage = s, .uid = uid};
	s->users = u;
	return u;
}

/* Returns the job's lane to a storage, which the first call creates. NULL: no memory. */
static struct read_lane *lane_to(struct read_turns *t, const struct read_want *want, dev_t device)
{
	struct read_lane *lane = want->lanes->first;
	struct read_storage *s;
	struct read_user *user;

	while (lane && lane->user->storage->device != device)
		lane = lane->next;
	if (lane)
		return lane;
	s = storage_of(t, device);
	if (!s)
		return NULL;
	forget_users(s);
	user = user_of(s, want->uid);
	lane = user ? calloc(1, sizeof(*lane)) : NULL;
	if (!lane) {
		forget_storage(s);
		return NULL;
	}
	lane->user = user;
	lane->weight = want->weight;
	lane->next = want->lanes->first;
	want->lanes->first = lane;
	lane->user->n_lanes++;
	s->n_lanes++;
	return lane;
}

static struct read_lane *lane_of(struct read_turns *t, const struct read_want *want)
{
	return lane_to(t, want, want->storage);
}

static void storage_enter(struct read_storage *s, uint64_t round)
{
	s->round = round;
	s->n_users = s->n_jobs = s->n_reads = 0;
	s->bytes = 0;
	s->again_ns = UINT64_MAX;
}

/* Enters a lane into this round: it has a want, or a read in progress. */
static void lane_enter(struct read_lane *lane, uint32_t weight, uint64_t round)
{
	struct read_user *u = lane->user;

	if (lane->round == round)
		return;
	if (u->round != round) {
		u->round = round;
		u->weight = u->n_reads = 0;
		u->waits = false;
		u->storage->n_users++;
	}
	lane->round = round;
	lane->weight = weight;
	lane->n_reads = 0;
	lane->waits = false;
	u->storage->n_jobs++;
	if (weight > u->weight)
		u->weight = weight;
}

static void count_reads(struct read_storage *s, uint64_t now_ns)
{
	for (const struct read_ticket *ticket = s->tickets; ticket; ticket = ticket->next) {
		uint64_t end_ns = ticket->begin_ns + READ_STUCK_NS;

		if (end_ns <= now_ns)
			continue;
		lane_enter(ticket->lane, ticket->lane->weight, s->round);
		ticket->lane->n_reads++;
		ticket->lane->user->n_reads++;
		s->n_reads++;
		s->bytes += ticket->bytes;
		if (end_ns < s->again_ns)
			s->again_ns = end_ns;
	}
}

/* Adds a want. A lane with reads in progress (on `under_way`, the lane to a storage) was not idle, but may
 * have been kept from its turn. */
static void lane_want(struct read_lane *lane, const struct read_lane *under_way, const struct read_want *want,
		      uint64_t round)
{
	struct read_user *u = lane->user;

	lane_enter(lane, want->weight, round);
	turn_enter(&u->storage->turns, &u->turn, under_way->user->n_reads ? READ_URGENT_BYTES : 0);
	turn_enter(&u->turns, &lane->turn, under_way->n_reads ? READ_URGENT_BYTES : 0);
	lane->waits = lane->waits || want->waits;
	u->waits = u->waits || want->waits;
}

static void want_enter(struct read_turns *t, struct read_lane *lane, struct read_lane *node,
		       const struct read_want *want, uint64_t now_ns)
{
	struct read_storage *s = lane->user->storage;

	if (s->round != t->round) {
		storage_enter(s, t->round);
		count_reads(s, now_ns);
	}
	lane_want(lane, lane, want, t->round);
	if (!node)
		return;
	if (node->user->storage->round != t->round)
		storage_enter(node->user->storage, t->round);
	lane_want(node, lane, want, t->round);
}

/* Returns the limit on reads in progress. A job with a single dataset can still get its part next to jobs
 * with many. */
static uint32_t depth_of(const struct read_storage *s)
{
	uint32_t depth = READ_DEPTH_READER * (s->n_users > 1 ? s->n_users : s->n_jobs);

	return depth < READ_DEPTH_MOST ? depth : READ_DEPTH_MOST;
}

/* The read's own size does not count: otherwise small reads would overtake large ones. */
static bool may_begin(const struct read_storage *s)
{
	return s->n_jobs == 1 ||
	       (s->n_reads < depth_of(s) && (s->n_reads < READ_DEPTH_READER || s->bytes < READ_DEPTH_BYTES));
}

/* Returns the turn's current value; the lowest goes first. */
static int64_t turn_now(const struct turn *turn, bool waits)
{
	return (int64_t)turn->used - (waits ? (int64_t)READ_URGENT_BYTES : 0);
}

static int compare_turns(int64_t a, int64_t b)
{
	return a < b ? -1 : a > b;
}

struct choice {
	const struct read_want *want;
	const struct read_lane *lane; /* the lane whose turn decides */
};

/* Returns true if a goes before b, which reads from the same storage. */
static bool goes_first(const struct choice *a, const struct choice *b)
{
	const struct read_user *u = a->lane->user, *v = b->lane->user;
	int c = 0;

	if (u != v)
		c = compare_turns(turn_now(&u->turn, u->waits), turn_now(&v->turn, v->waits));
	else if (a->lane != b->lane)
		c = compare_turns(turn_now(&a->lane->turn, a->lane->waits),
				  turn_now(&b->lane->turn, b->lane->waits));
	else if (a->want->distance != b->want->distance)
		return a->want->distance < b->want->distance;
	return c ? c < 0 : a->want->last_served < b->want->last_served;
}

static void lane_reach(const struct read_lane *lane)
{
	struct read_user *u = lane->user;

	turns_reach(&u->storage->turns, turn_now(&u->turn, u->waits));
	turns_reach(&u->turns, turn_now(&lane->turn, lane->waits));
}

static bool is_limited(const struct read_turns *t)
{
	return t->bytes_per_s || t->ops_per_s;
}

void read_turns_limit(struct read_turns *t, uint64_t bytes_per_s, uint64_t ops_per_s)
{
	if (t->bytes_per_s == bytes_per_s && t->ops_per_s == ops_per_s)
		return;
	t->bytes_per_s = bytes_per_s;
	t->ops_per_s = ops_per_s;
	t->paid_ns = 0; /* earlier debts were computed with another rate */
}

void read_turns_limits(const struct read_turns *t, uint64_t *ret_bytes_per_s, uint64_t *ret_ops_per_s)
{
	*ret_bytes_per_s = t->bytes_per_s;
	*ret_ops_per_s = t->ops_per_s;
}

static uint64_t time_for(uint64_t amount, uint64_t per_s)
{
	return per_s ? (uint64_t)((double)amount * 1e9 / (double)per_s) : 0;
}

static void pay(struct read_turns *t, uint64_t bytes, uint64_t now_ns)
{
	uint64_t by_bytes = time_for(bytes, t->bytes_per_s),
		 by_ops = time_for((bytes + READ_OP_BYTES - 1) / READ_OP_BYTES, t->ops_per_s);

	if (t->paid_ns < now_ns)
		t->paid_ns = now_ns;
	t->paid_ns += by_bytes > by_ops ? by_bytes : by_ops;
}

uint64_t read_turns_limited_ns(const struct read_turns *t, uint64_t now_ns)
{
	return t->limited_ns + (t->limited_since_ns ? now_ns - t->limited_since_ns : 0);
}

/* Returns true if a read that could begin has to wait until *ret_again_ns, because of the limit. */
static bool is_held(struct read_turns *t, bool could_begin, uint64_t now_ns, uint64_t *ret_again_ns)
{
	bool held = could_begin && is_limited(t) && t->paid_ns > now_ns + READ_BURST_NS;

	if (held)
		*ret_again_ns = t->paid_ns - READ_BURST_NS;
	t->limited_ns = read_turns_limited_ns(t, now_ns);
	t->limited_since_ns = held ? now_ns : 0;
	return held;
}

long read_turns_pick(struct read_turns *t, const struct read_want *wants, size_t n, uint64_t now_ns,
		     uint64_t *ret_again_ns)
{
	struct choice best = {0};
	bool limited = is_limited(t);

	*ret_again_ns = UINT64_MAX;
	t->round++;
	for (size_t i = 0; i < n; i++) {
		struct read_lane *lane = lane_of(t, &wants[i]);
		struct read_lane *node = lane && limited ? lane_to(t, &wants[i], NODE) : NULL;

		if (!lane || (limited && !node))
			return (long)i;
		want_enter(t, lane, node, &wants[i], now_ns);
	}
	for (size_t i = 0; i < n; i++) {
		const struct read_storage *s = lane_of(t, &wants[i])->user->storage;
		const struct choice choice = {&wants[i], lane_to(t, &wants[i], limited ? NODE : s->device)};

		if (!may_begin(s)) {
			if (s->again_ns < *ret_again_ns)
				*ret_again_ns = s->again_ns;
		} else if (!best.want || (choice.lane->user->storage == best.lane->user->storage &&
					  goes_first(&choice, &best))) {
			best = choice;
		}
	}
	if (is_held(t, best.want != NULL, now_ns, ret_again_ns) || !best.want)
		return -1;
	lane_reach(best.lane);
	if (limited)
		lane_reach(lane_of(t, best.want));
	return best.want - wants;
}

static void charge(struct read_lane *lane, uint32_t weight, uint64_t amount)
{
	uint32_t user_weight = lane->user->weight > weight ? lane->user->weight : weight;

	turn_charge(&lane->turn, amount, weight);
	turn_charge(&lane->user->turn, amount, user_weight);
}

void read_turns_begin(struct read_turns *t, const struct read_want *want, uint64_t now_ns,
		      struct read_ticket *ticket)
{
	struct read_lane *lane = lane_of(t, want);
	struct read_storage *s;

	if (is_limited(t))
		pay(t, want->bytes, now_ns);
	*ticket = (struct read_ticket){.lane = lane, .begin_ns = now_ns, .bytes = want->bytes};
	if (!lane)
		return;
	ticket->node = is_limited(t) ? lane_to(t, want, NODE) : NULL;
	s = lane->user->storage;
	ticket->next = s->tickets;
	s->tickets = ticket;
	charge(lane, want->weight, want->bytes + READ_PRICE_BYTES);
	if (ticket->node)
		charge(ticket->node, want->weight, want->bytes + READ_PRICE_BYTES);
}

void read_turns_charge(const struct read_ticket *ticket, uint32_t weight, uint64_t bytes)
{
	if (!ticket->lane)
		return;
	charge(ticket->lane, weight, bytes);
	if (!ticket->node)
		return;
	charge(ticket->node, weight, bytes);
	pay(ticket->node->user->storage->owner, bytes, ticket->begin_ns);
}

void read_turns_end(struct read_ticket *ticket)
{
	if (!ticket->lane)
		return;
	LL_DELETE(ticket->lane->user->storage->tickets, ticket);
	ticket->lane = NULL;
}
