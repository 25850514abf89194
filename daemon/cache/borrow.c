/* SPDX-License-Identifier: Apache-2.0 */
#include "borrow.h"

#include <math.h>

/* Percentage of time for which tasks wait for memory that counts as pressure: half of the value at which the
 * tuner cuts claims. */
#define WAIT_SOME 5.0
/* If more than 1/FREE_SHARE of the memory is free and unused, tasks that wait have reached a limit of their
 * own cgroup. */
#define FREE_SHARE 8.0
/* Minimum time in which programs can allocate all memory of a machine. One core allocates 4 KiB pages at
 * about 3 GiB/s, and all cores of a large machine at a fraction of their memory's speed. */
#define TAKE_ALL_S 4.0
/* Minimum of refaulted bytes in one second that counts as a sign of shortage. */
#define REFAULT_BYTES (8.0 * 1024 * 1024)
#define HOLD_NS       UINT64_C(10000000000)
#define HOLD_MAX_NS   UINT64_C(600000000000)

static void hold(struct borrow *l, uint64_t now_ns)
{
	/* A sign of shortage during a hold belongs to the same event. If it comes after the hold, within the
	 * hold's length, the next hold is twice as long. */
	if (now_ns >= l->until_ns)
		l->hold_ns = l->hold_ns && now_ns < l->until_ns + l->hold_ns ? l->hold_ns * 2 : HOLD_NS;
	if (l->hold_ns > HOLD_MAX_NS)
		l->hold_ns = HOLD_MAX_NS;
	l->until_ns = now_ns + l->hold_ns;
}

static bool is_free(const struct stall_node *node)
{
	return node->memory_free_bytes > node->memory_limit_bytes / FREE_SHARE;
}

static bool is_waited_for(const struct stall_node *node)
{
	return node->oom_kills > 0 || (!is_free(node) && (node->memory_some_avg10 >= WAIT_SOME ||
							  node->memory_some_now >= WAIT_SOME));
}

static uint64_t borrow_limit(struct borrow *l, const struct stall_node *node, double refaulted,
			     uint64_t borrowed, uint64_t now_ns)
{
	double reserve = 2 * stall_reserve_bytes(node->memory_limit_bytes);
	double more = node->memory_headroom_bytes - reserve;

	if (is_waited_for(node)) {
		hold(l, now_ns);
		return 0;
	}
	if (isnan(more))
		return BORROW_ALL;
	if (more < 0) {
		hold(l, now_ns);
		return -more < (double)borrowed ? borrowed - (uint64_t)-more : 0;
	}
	if (!is_free(node) && refaulted >= REFAULT_BYTES) {
		hold(l, now_ns);
		return borrowed / 2;
	}
	return now_ns < l->until_ns ? borrowed : borrowed + (uint64_t)more;
}

static uint64_t borrow_ceiling(struct borrow *l, const struct stall_node *node, const struct borrow_use *use,
			       uint64_t now_ns)
{
	double more = node->memory_headroom_bytes - stall_reserve_bytes(node->memory_limit_bytes);
	double raised;

	if (isnan(more))
		return BORROW_ALL;
	if (-more > (double)use->borrowed) {
		hold(l, now_ns);
		l->ceiling_bytes = -more < (double)use->total ? use->total - (uint64_t)-more : 1;
	} else if (l->ceiling_bytes > 0 && more > 0 && now_ns >= l->until_ns) {
		/* Raises the ceiling by half of the difference, because the limit on borrowed memory grows at
		 * the same time. */
		raised = (double)l->ceiling_bytes + more / 2;
		l->ceiling_bytes = raised < (double)use->limit ? (uint64_t)raised : 0;
	}
	return l->ceiling_bytes > 0 ? l->ceiling_bytes : BORROW_ALL;
}

struct borrow_limits borrow_decide(struct borrow *l, const struct stall_node *node, double refaulted,
				   const struct borrow_use *use, uint64_t now_ns)
{
	struct borrow_limits limits;

	limits.borrowed = borrow_limit(l, node, refaulted, use->borrowed, now_ns);
	limits.total = borrow_ceiling(l, node, use, now_ns);
	return limits;
}

uint32_t borrow_pause_ms(double headroom, double machine_bytes)
{
	/* time in which programs can take half of the headroom */
	double ms = 1000 * TAKE_ALL_S / 2 * headroom / machine_bytes;

	return ms < BORROW_PAUSE_MOST_MS ? (uint32_t)fmax(ms, BORROW_PAUSE_LEAST_MS) : BORROW_PAUSE_MOST_MS;
}
