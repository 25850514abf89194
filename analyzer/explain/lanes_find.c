/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes_find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/cleanup.h"
#include "roles.h"
#include "window.h"

#define LANES_MAX        64
#define HELPERS_MAX      8
#define HELPER_CPU_RATIO 0.005 /* of the window; a quieter thread is left out */
#define EXACT_RATIO      0.4   /* of the segments may go to excerpts */
#define WAKES_MAX        20000

/* Lanes in the making, and which lane each thread is on. */
struct plan {
	const struct study *study;
	struct lanes *lanes;
	uint32_t *of_thread; /* of timeline->threads[i]; UINT32_MAX: none */
	struct interval_list exact;
};

static uint64_t begin_of(const struct plan *plan, const struct timeline_thread *thread)
{
	uint64_t begin_ns = plan->study->window->begin_ns;

	return thread->first_ns > begin_ns ? thread->first_ns : begin_ns;
}

static uint64_t end_of(const struct plan *plan, const struct timeline_thread *thread)
{
	uint64_t end_ns = plan->study->window->end_ns;

	return thread->last_ns < end_ns ? thread->last_ns : end_ns;
}

/* A lane whose threads all lived at other times can take this thread too. Threads are visited by tid, not by
 * time, so any overlap counts. */
static bool lane_is_free(const struct plan *plan, uint32_t lane, const struct timeline_thread *thread)
{
	const struct timeline *timeline = plan->study->timeline;

	for (size_t i = 0; i < timeline->n_threads; i++)
		if (plan->of_thread[i] == lane &&
		    begin_of(plan, &timeline->threads[i]) < end_of(plan, thread) &&
		    begin_of(plan, thread) < end_of(plan, &timeline->threads[i]))
			return false;
	return true;
}

static void lane_take(struct plan *plan, size_t thread_index, enum lane_role role, const char *name)
{
	const struct timeline_thread *thread = &plan->study->timeline->threads[thread_index];
	struct lanes *lanes = plan->lanes;
	uint32_t n_same = 0;

	if (begin_of(plan, thread) >= end_of(plan, thread))
		return;
	for (uint32_t i = 0; i < lanes->n_items; i++) {
		if (lanes->items[i].role != role)
			continue;
		n_same++;
		if (role != LANE_HELPER && lane_is_free(plan, i, thread)) {
			plan->of_thread[thread_index] = i;
			return;
		}
	}
	if (lanes->n_items == LANES_MAX)
		return;
	plan->of_thread[thread_index] = (uint32_t)lanes->n_items;
	lanes->items[lanes->n_items] = (struct lane){.role = role, .tid = thread->tid, .tgid = thread->tgid};
	snprintf(lanes->items[lanes->n_items].name, sizeof(lanes->items[0].name),
		 role == LANE_WORKER || role == LANE_HANDOFF ? "%s %u" : "%s", name, n_same + 1);
	lanes->n_items++;
}

static void take_all(struct plan *plan, enum role of, enum lane_role role, const char *name)
{
	for (size_t i = 0; i < plan->study->timeline->n_threads; i++)
		if (plan->study->roles->of[i] == of)
			lane_take(plan, i, role, name);
}

static uint64_t cpu_in_window(const struct plan *plan, const struct timeline_thread *thread)
{
	uint64_t begin_ns = begin_of(plan, thread), end_ns = end_of(plan, thread);

	if (thread == plan->study->roles->reader)
		return UINT64_MAX; /* the thread that reads results in the trainer's stead */
	return begin_ns < end_ns ? timeline_account(thread, begin_ns, end_ns).cpu_ns : 0;
}

/* The busiest other threads of the trainer's process. */
static int take_helpers(struct plan *plan)
{
	const struct study *study = plan->study;
	size_t n_threads = study->timeline->n_threads;
	double window_ns = (double)(study->window->end_ns - study->window->begin_ns);
	_cleanup_(freep) uint64_t *cpu_ns = calloc(n_threads + 1, sizeof(*cpu_ns));

	if (!cpu_ns)
		return -ENOMEM;
	for (size_t i = 0; i < n_threads; i++)
		if (study->roles->of[i] == ROLE_HELPER)
			cpu_ns[i] = cpu_in_window(plan, &study->timeline->threads[i]);
	for (unsigned int n = 0; n < HELPERS_MAX; n++) {
		const char *comm;
		size_t best = 0;

		for (size_t i = 0; i < n_threads; i++)
			if (cpu_ns[i] > cpu_ns[best])
				best = i;
		if (!n_threads || (double)cpu_ns[best] <= HELPER_CPU_RATIO * window_ns)
			return 0;
		comm = study->timeline->threads[best].comm;
		lane_take(plan, best, LANE_HELPER, comm[0] ? comm : "thread");
		cpu_ns[best] = 0;
	}
	return 0;
}

/* An upper bound of the segments without cells. */
static size_t segments_estimate(const struct plan *plan)
{
	const struct timeline *timeline = plan->study->timeline;
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (plan->of_thread[i] == UINT32_MAX || begin_of(plan, thread) >= end_of(plan, thread))
			continue;
		n += 2 * (thread->n_offs + timeline_call_from(thread, end_of(plan, thread)) -
			  timeline_call_from(thread, begin_of(plan, thread)));
	}
	return n;
}

struct step_wall {
	uint64_t wall_ns;
	size_t index;
};

static int by_wall(const void *left, const void *right)
{
	const struct step_wall *a = left, *b = right;

	return a->wall_ns < b->wall_ns ? -1 : a->wall_ns > b->wall_ns;
}

/* Makes the steps around `middle` an excerpt, in whole cells. */
static int excerpt_add(struct plan *plan, size_t middle, size_t n_steps, uint64_t cell_ns)
{
	const struct window *window = plan->study->window;
	size_t first = middle > n_steps / 2 ? middle - n_steps / 2 : 0;
	size_t last = first + n_steps - 1 < window->n_steps ? first + n_steps - 1 : window->n_steps - 1;
	uint64_t begin_ns = window->steps[first].begin_ns, end_ns = window->steps[last].end_ns;

	return interval_list_add(&plan->exact, begin_ns - begin_ns % cell_ns,
				 end_ns - end_ns % cell_ns + cell_ns);
}

/* Chooses the first steps, a typical one and the slowest, with as many steps around each as there is room
 * for. */
static int excerpts_choose(struct plan *plan, size_t n_segments, size_t n_max)
{
	const struct window *window = plan->study->window;
	size_t n_around =
	    (size_t)(EXACT_RATIO * (double)n_max / 3 / ((double)n_segments / (double)window->n_steps + 1));
	_cleanup_(freep) struct step_wall *walls = calloc(window->n_steps + 1, sizeof(*walls));
	uint64_t cell_ns = plan->lanes->cell_ns;
	int r;

	if (!walls)
		return -ENOMEM;
	for (size_t i = 0; i < window->n_steps; i++)
		walls[i] = (struct step_wall){window->steps[i].end_ns - window->steps[i].begin_ns, i};
	qsort(walls, window->n_steps, sizeof(*walls), by_wall);
	if (!n_around)
		return 0;
	r = excerpt_add(plan, 0, n_around, cell_ns);
	if (r == 0)
		r = excerpt_add(plan, walls[window->n_steps / 2].index, n_around, cell_ns);
	if (r == 0)
		r = excerpt_add(plan, walls[window->n_steps - 1].index, n_around, cell_ns);
	interval_list_tidy(&plan->exact);
	return r;
}

static int resolution_choose(struct plan *plan, size_t n_max)
{
	const struct window *window = plan->study->window;
	size_t n_segments = segments_estimate(plan);
	size_t n_cells = (size_t)((1 - EXACT_RATIO) * (double)n_max) / plan->lanes->n_items + 1;

	if (n_segments <= n_max)
		return 0;
	plan->lanes->cell_ns = (window->end_ns - window->begin_ns) / n_cells + 1;
	return excerpts_choose(plan, n_segments, n_max);
}

/* The lane's next thread, by the time it begins. */
static size_t next_thread(const struct plan *plan, uint32_t lane, uint64_t after_ns, size_t after_index)
{
	const struct timeline *timeline = plan->study->timeline;
	size_t best = SIZE_MAX;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		uint64_t begin_ns = begin_of(plan, &timeline->threads[i]);

		if (plan->of_thread[i] != lane || begin_ns < after_ns ||
		    (begin_ns == after_ns && i <= after_index && after_index != SIZE_MAX))
			continue;
		if (best == SIZE_MAX || begin_ns < begin_of(plan, &timeline->threads[best]))
			best = i;
	}
	return best;
}

static int lane_fill(struct plan *plan, uint32_t index)
{
	const struct study *study = plan->study;
	struct lane *lane = &plan->lanes->items[index];
	struct lane_builder builder = {.lane = lane, .cell_ns = plan->lanes->cell_ns, .exact = &plan->exact};
	size_t at = next_thread(plan, index, 0, SIZE_MAX);
	int r = 0;

	while (r == 0 && at != SIZE_MAX) {
		const struct timeline_thread *thread = &study->timeline->threads[at];
		uint64_t begin_ns = begin_of(plan, thread), end_ns = end_of(plan, thread);

		r = lane->role == LANE_TRAINER
			? lane_of_trainer(study, begin_ns, end_ns, &builder)
			: lane_of_thread(study, thread, lane->role, begin_ns, end_ns, &builder);
		if (r == 0 && lane->role == LANE_WORKER)
			r = lane_batches(study, thread, begin_ns, end_ns, lane);
		at = next_thread(plan, index, begin_ns, at);
	}
	return r == 0 ? lane_builder_finish(&builder) : r;
}

static int build(struct plan *plan, size_t n_segments_max)
{
	struct lanes *lanes = plan->lanes;
	int r;

	lanes->items = calloc(LANES_MAX, sizeof(*lanes->items));
	if (!lanes->items)
		return -ENOMEM;
	take_all(plan, ROLE_TRAINER, LANE_TRAINER, "trainer");
	take_all(plan, ROLE_WORKER, LANE_WORKER, "worker");
	take_all(plan, ROLE_HANDOFF, LANE_HANDOFF, "hand-off");
	r = take_helpers(plan);
	if (r < 0 || !lanes->n_items)
		return r;
	r = resolution_choose(plan, n_segments_max);
	for (uint32_t i = 0; r == 0 && i < lanes->n_items; i++)
		r = lane_fill(plan, i);
	if (r == 0)
		r = lanes_waits_find(plan->study, WAKES_MAX, lanes);
	if (r == 0)
		r = lanes_wakes_find(plan->study, plan->of_thread, WAKES_MAX, lanes);
	if (r == 0)
		r = lanes_gpu_calls_find(plan->study, plan->of_thread, (size_t)5 * WAKES_MAX, lanes);
	return r == 0 ? lanes_levels_find(plan->study->window, (size_t)2 * WAKES_MAX, lanes) : r;
}

int lanes_find(const struct study *study, size_t n_segments_max, struct lanes **ret_lanes)
{
	struct plan plan = {.study = study};
	int r = -ENOMEM;

	plan.lanes = calloc(1, sizeof(*plan.lanes));
	plan.of_thread = calloc(study->timeline->n_threads + 1, sizeof(*plan.of_thread));
	if (plan.lanes && plan.of_thread) {
		memset(plan.of_thread, 0xff, study->timeline->n_threads * sizeof(*plan.of_thread));
		r = build(&plan, n_segments_max);
	}
	free(plan.of_thread);
	interval_list_free(&plan.exact);
	if (r < 0) {
		lanes_free(plan.lanes);
		return r;
	}
	*ret_lanes = plan.lanes;
	return 0;
}

void lanes_free(struct lanes *lanes)
{
	if (!lanes)
		return;
	for (size_t i = 0; i < lanes->n_items; i++) {
		free(lanes->items[i].segments);
		free(lanes->items[i].batches);
	}
	free(lanes->items);
	free(lanes->wakes);
	free(lanes->waits);
	free(lanes->levels);
	free(lanes->gpu_calls);
	free(lanes);
}
