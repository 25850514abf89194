/* SPDX-License-Identifier: Apache-2.0 */
#include "lend.h"

#include <math.h>

/* Percent of the time that tasks wait for memory: half of what the tuner cuts claims for. */
#define WAIT_SOME 5.0
/* With this part of the memory free and unused, tasks that wait do so at a limit of their own. */
#define FREE_SHARE 8.0
/* The same as the tuner's reserve (docs/tuning.md). */
#define RESERVE_SHARE 16.0
#define RESERVE_MAX   (256.0 * 1024 * 1024)
/* In one second: less than this is not a sign of anything. */
#define REFAULT_BYTES (8.0 * 1024 * 1024)
#define HOLD_NS       UINT64_C(10000000000)
#define HOLD_MAX_NS   UINT64_C(600000000000)

static void hold(struct lend *l, uint64_t now_ns)
{
	/* Within a hold it is still the same event; if it comes again within as long a time after, the next
	 * hold is twice as long. */
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

uint64_t lend_limit(struct lend *l, const struct stall_node *node, double refaulted, uint64_t borrowed,
		    uint64_t now_ns)
{
	double reserve = 2 * fmin(node->memory_limit_bytes / RESERVE_SHARE, RESERVE_MAX);
	double more = node->memory_headroom_bytes - reserve;

	if (is_waited_for(node)) {
		hold(l, now_ns);
		return 0;
	}
	if (isnan(more))
		return LEND_ALL;
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
