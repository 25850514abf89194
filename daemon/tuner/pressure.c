/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory pressure: caches shrink before the kernel has to kill processes. They are cut in the second in which
 * pressure shows; the memory taken is returned in steps after the node has been calm for a while.
 */
#include "state.h"

#include <math.h>

/* Percent of time in which some (all) tasks wait for memory, avg10. A busy page cache alone makes up to a few
 * percent; 10 % is felt. systemd-oomd kills at 60 %. */
#define SOME_TIGHT 10.0
#define FULL_TIGHT 5.0
#define SOME_CALM  3.0
/* With this part of the memory free and unused, no task waits for our memory: tasks that wait do so at a
 * limit of their own, which the machine's PSI counts too. */
#define FREE_SHARE 8.0
/* Limit for the last second only: avg10 takes two seconds or more to show what one second saw. Used for the
 * first cut only: single seconds vary, so later cuts go by the mean. */
#define NOW_TIGHT 15.0
/* avg10 keeps rising for seconds after the cause is gone, so another cut needs a further rise. */
#define AGAIN_NS (2 * SECOND_NS)
#define RISE     1.0 /* rise of avg10 from which to cut again, in percentage points */
/* Minimum time between cuts for short headroom: a little less than the second between two samples. Headroom
 * is not a mean: if it is short, it is short now. */
#define AGAIN_SHORT_NS (SECOND_NS * 8 / 10)
/* Where nothing can be dropped or swapped, no task waits before one is killed. So headroom that others will
 * have used up by the next sample, and by the time that dropped memory is free, counts as gone. */
#define AHEAD_S    1.5
#define SEEN_MAX_S 5 /* maximum time between two samples from which to compute a fall per second */
/* Time of calm before the first step up, longer than avg10 covers; then the time until avg10 shows the
 * last step. */
#define CALM_NS    (15 * SECOND_NS)
#define RAISE_NS   (10 * SECOND_NS)
#define BACK_STEPS 6    /* maximum number of steps until caches have regained their memory */
#define RAISE      1.25 /* a step up: small enough to see its effect before the next one */

static double figure(double x)
{
	return x >= 0 && x < INFINITY ? x : NAN;
}

double pressure_reserve(const struct tuner_config *config, const struct stall_node *node)
{
	double limit = figure(node->memory_limit_bytes);

	if (config->reserve_bytes)
		return (double)config->reserve_bytes;
	return isnan(limit) ? 0 : stall_reserve_bytes(limit);
}

/* Measures the headroom that others took per second. */
static void look(struct tuner_pressure *p, const struct stall_node *node, double held, uint64_t now_ns)
{
	double headroom = figure(node->memory_headroom_bytes), seconds = (double)(now_ns - p->seen_ns) / 1e9;

	p->fell = p->falls;
	p->falls = 0;
	if (p->seen_ns && now_ns > p->seen_ns && seconds < SEEN_MAX_S && headroom >= 0 && p->headroom >= 0)
		p->falls = fmax((p->headroom - headroom - (held - p->held)) / seconds, 0);
	p->headroom = headroom;
	p->held = held;
	p->seen_ns = now_ns;
}

/* Returns true if headroom is short, or will be soon: it fell for two seconds. A single step is not a
 * trend. */
static bool is_short(const struct tuner_pressure *p, const struct stall_node *node, double reserve)
{
	return figure(node->memory_headroom_bytes) - fmin(p->falls, p->fell) * AHEAD_S < reserve / 2 ||
	       node->oom_kills > 0;
}

static bool is_waited_for(const struct stall_node *node)
{
	return !(figure(node->memory_free_bytes) > figure(node->memory_limit_bytes) / FREE_SHARE);
}

static bool is_tight(const struct tuner_pressure *p, const struct stall_node *node, double reserve)
{
	bool felt = figure(node->memory_some_avg10) >= SOME_TIGHT ||
		    figure(node->memory_full_avg10) >= FULL_TIGHT ||
		    figure(node->memory_some_now) >= NOW_TIGHT;

	return (felt && is_waited_for(node)) || is_short(p, node, reserve);
}

static bool is_calm(const struct stall_node *node, double reserve)
{
	bool felt = figure(node->memory_some_avg10) > SOME_CALM || figure(node->memory_some_now) >= NOW_TIGHT;

	return !(felt && is_waited_for(node)) && !(figure(node->memory_headroom_bytes) < reserve * 2) &&
	       !(node->oom_kills > 0);
}

static void cut(struct tuner_pressure *p, const struct stall_node *node, double held, uint64_t now_ns)
{
	double some = figure(node->memory_some_avg10);

	if (!p->tight && p->ceiling_bytes <= 0)
		p->before_bytes = held;
	p->ceiling_bytes = fmax((p->ceiling_bytes > 0 ? fmin(p->ceiling_bytes, held) : held) / 2, 1);
	p->tight = true;
	p->cut_ns = now_ns;
	p->clear_ns = 0;
	p->some_at_cut = isnan(some) ? 0 : some;
}

static bool cut_again(const struct tuner_pressure *p, const struct stall_node *node, double reserve,
		      uint64_t now_ns)
{
	if (is_short(p, node, reserve))
		return now_ns >= p->cut_ns + AGAIN_SHORT_NS;
	return now_ns >= p->cut_ns + AGAIN_NS && figure(node->memory_some_avg10) > p->some_at_cut + RISE;
}

static void recover(struct tuner_pressure *p, double headroom, double reserve, uint64_t now_ns)
{
	double raised;

	if (!p->clear_ns)
		p->clear_ns = now_ns;
	if (now_ns < p->clear_ns + CALM_NS || now_ns < p->raised_ns + RAISE_NS)
		return;
	p->tight = false;
	p->raised_ns = now_ns;
	raised = fmax(p->ceiling_bytes * RAISE, p->ceiling_bytes + p->before_bytes / BACK_STEPS);
	if (headroom >= 0 && raised - p->ceiling_bytes > headroom - reserve)
		raised = p->ceiling_bytes + fmax(headroom - reserve, 0);
	p->ceiling_bytes = raised >= p->before_bytes ? 0 : raised;
}

double pressure_ceiling(struct tuner_pressure *p, const struct tuner_config *config,
			const struct stall_node *node, double held, uint64_t now_ns)
{
	double reserve = pressure_reserve(config, node);

	look(p, node, held, now_ns);
	if (is_tight(p, node, reserve)) {
		if (!p->tight || cut_again(p, node, reserve, now_ns))
			cut(p, node, held, now_ns);
		p->clear_ns = 0;
		if (p->some_at_cut > node->memory_some_avg10) /* avg10 falls, so a later rise is a new one */
			p->some_at_cut = node->memory_some_avg10;
	} else if (p->ceiling_bytes > 0) {
		if (is_calm(node, reserve))
			recover(p, figure(node->memory_headroom_bytes), reserve, now_ns);
		else
			p->clear_ns = 0;
	}
	return p->ceiling_bytes > 0 ? p->ceiling_bytes : INFINITY;
}
