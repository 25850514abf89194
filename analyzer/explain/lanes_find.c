/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes_find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "bpf/gpu.h"
#include "analyzer/timeline/calls.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "analyzer/shares/partition.h"
#include "analyzer/roles/roles.h"
#include "analyzer/replay/split.h"
#include "analyzer/base/times.h"
#include "analyzer/waits/waits.h"
#include "analyzer/shares/walk.h"
#include "analyzer/waits/window.h"

/* Returns the end of the interval on or off the CPU that begins at begin_ns, outside of data waits. The
 * interval is cut where a checkpoint, compiling or a call that waits for the GPU begins or ends. */
static uint64_t working_end(const struct study *study, uint64_t begin_ns, uint64_t end_ns, bool *ret_gpu)
{
	const struct interval_list *cuts[] = {&study->partition->checkpoints, &study->partition->compiling,
					      &study->partition->gpu_waits};
	bool within[3] = {false, false, false};

	end_ns = timeline_piece_at(study->roles->trainer, begin_ns, end_ns).end_ns;
	for (size_t i = 0; i < 3; i++) {
		size_t next = interval_list_from(cuts[i], begin_ns);

		if (next == cuts[i]->n)
			continue;
		within[i] = cuts[i]->items[next].begin_ns <= begin_ns;
		end_ns =
		    min_ns(end_ns, within[i] ? cuts[i]->items[next].end_ns : cuts[i]->items[next].begin_ns);
	}
	*ret_gpu = within[2];
	return end_ns;
}

static int add_working(const struct study *study, uint64_t begin_ns, uint64_t end_ns,
		       struct lane_builder *builder)
{
	while (begin_ns < end_ns) {
		uint64_t share_ns[SHARE_COUNT] = {0};
		enum analysis_share most = SHARE_DEVICE;
		bool gpu;
		uint64_t to_ns = working_end(study, begin_ns, end_ns, &gpu);

		partition_interval(study->partition, begin_ns, to_ns, share_ns);
		for (enum analysis_share i = 0; i < SHARE_COUNT; i++)
			if (share_ns[i] > share_ns[most])
				most = i;
		if (lane_builder_add(builder, begin_ns, to_ns,
				     gpu && most == SHARE_DEVICE ? LANE_GPU_WAIT
								 : lane_state_of_share(most)) < 0)
			return -ENOMEM;
		begin_ns = to_ns;
	}
	return 0;
}

/* With an inline loader the calls show when it fetched. Otherwise only the amount of fetching is known, so it
 * is drawn at the start of the wait. */
static int add_wait(const struct study *study, size_t i, uint64_t begin_ns, uint64_t end_ns,
		    struct lane_builder *builder)
{
	const struct interval_list *calls = &study->waits->file_calls;
	uint64_t fetch_end_ns = study->waits->items[i].begin_ns + study->split->fetch_ns[i];
	int r = 0;

	if (study->waits->loader != LOADER_INLINE) {
		fetch_end_ns = min_ns(max_ns(fetch_end_ns, begin_ns), end_ns);
		if (lane_builder_add(builder, begin_ns, fetch_end_ns, LANE_FETCH_STALL) < 0)
			return -ENOMEM;
		return lane_builder_add(builder, fetch_end_ns, end_ns, LANE_PREP_STALL);
	}
	for (size_t k = interval_list_from(calls, begin_ns); r == 0 && k < calls->n; k++) {
		uint64_t from_ns = min_ns(max_ns(calls->items[k].begin_ns, begin_ns), end_ns);
		uint64_t to_ns = min_ns(calls->items[k].end_ns, end_ns);

		r = lane_builder_add(builder, begin_ns, from_ns, LANE_PREP_STALL);
		if (r == 0)
			r = lane_builder_add(builder, from_ns, to_ns, LANE_FETCH_STALL);
		begin_ns = max_ns(begin_ns, to_ns);
		if (begin_ns >= end_ns)
			break;
	}
	return r == 0 ? lane_builder_add(builder, begin_ns, end_ns, LANE_PREP_STALL) : r;
}

/* Adds the trainer's segments within [begin_ns, end_ns). -ENOMEM. */
static int lane_of_trainer(const struct study *study, uint64_t begin_ns, uint64_t end_ns,
			   struct lane_builder *builder)
{
	const struct data_waits *waits = study->waits;
	int r = 0;

	for (size_t i = data_waits_from(waits, begin_ns); r == 0 && i < waits->n; i++) {
		uint64_t from_ns = max_ns(waits->items[i].begin_ns, begin_ns);
		uint64_t to_ns = min_ns(waits->items[i].end_ns, end_ns);

		if (from_ns >= end_ns)
			break;
		r = add_working(study, begin_ns, from_ns, builder);
		if (r == 0)
			r = add_wait(study, i, from_ns, to_ns, builder);
		begin_ns = to_ns;
	}
	return r == 0 ? add_working(study, begin_ns, end_ns, builder) : r;
}

static bool awaits_work(const struct study *study, const struct timeline_thread *thread, enum lane_role role,
			uint64_t at_ns)
{
	const struct timeline_call *call;

	if (role != LANE_WORKER)
		return true; /* other roles only wait for something to hand over, write or compute */
	call = timeline_call_at(thread, at_ns);
	return call && (call_is_pipe_poll(call) || call_is_pipe_read(call)) &&
	       !roles_is_result(study->roles, call->inode);
}

/* Adds an interval on a CPU, cut where calls fetch. */
static int add_running(const struct timeline_thread *thread, enum role role, struct timeline_piece piece,
		       struct lane_builder *builder)
{
	uint64_t at_ns = piece.begin_ns;

	for (size_t i = timeline_call_from(thread, at_ns); i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		uint64_t from_ns = max_ns(call->begin_ns, at_ns), to_ns = min_ns(call->end_ns, piece.end_ns);

		if (from_ns >= piece.end_ns)
			break;
		if (from_ns >= to_ns || !walk_fetch_calls(thread, role, from_ns, to_ns))
			continue;
		if (lane_builder_add(builder, at_ns, from_ns, LANE_CPU) < 0 ||
		    lane_builder_add(builder, from_ns, to_ns, LANE_FETCH) < 0)
			return -ENOMEM;
		at_ns = to_ns;
	}
	return lane_builder_add(builder, at_ns, piece.end_ns, LANE_CPU);
}

static int lane_of_thread(const struct study *study, const struct timeline_thread *thread,
			  enum lane_role role, uint64_t begin_ns, uint64_t end_ns,
			  struct lane_builder *builder)
{
	enum role job_role = role_of(study->timeline, study->roles, thread);
	int r = 0;

	while (r == 0 && begin_ns < end_ns) {
		struct timeline_piece piece = timeline_piece_at(thread, begin_ns, end_ns);
		enum lane_state state = LANE_BLOCKED;

		switch (piece.state) {
		case STATE_UNKNOWN: break;
		case STATE_CPU: r = add_running(thread, job_role, piece, builder); break;
		case STATE_QUEUE:
			r = lane_builder_add(builder, piece.begin_ns, piece.end_ns, LANE_QUEUE);
			break;
		case STATE_SLEEP:
		case STATE_BLOCK:
			if ((piece.off->flags & EVENT_FLAG_MAJOR_FAULT) ||
			    walk_fetching(thread, job_role, piece.off->begin_ns))
				state = LANE_FETCH;
			else if (awaits_work(study, thread, role, piece.off->begin_ns))
				state = LANE_IDLE;
			r = lane_builder_add(builder, piece.begin_ns, piece.end_ns, state);
			break;
		}
		begin_ns = piece.end_ns;
	}
	return r;
}

static int batch_add(struct lane *lane, size_t *n_allocated, uint64_t begin_ns, uint64_t end_ns)
{
	if (begin_ns >= end_ns)
		return 0;
	if (array_reserve(lane->batches, lane->n_batches, *n_allocated) < 0)
		return -ENOMEM;
	lane->batches[lane->n_batches++] = (struct lane_batch){begin_ns, end_ns};
	return 0;
}

/* Adds the lane's batches: each from the read of an index to the next attempt to read one. */
static int lane_batches(const struct study *study, const struct timeline_thread *worker, uint64_t begin_ns,
			uint64_t end_ns, struct lane *lane)
{
	size_t n_allocated = lane->n_batches; /* may be too low, which costs one extra growth */
	uint64_t taken_ns = 0;

	for (size_t i = timeline_call_from(worker, begin_ns); i < worker->n_calls; i++) {
		const struct timeline_call *call = &worker->calls[i];
		bool reads = call_is_pipe_read(call);

		if (call->begin_ns >= end_ns)
			break;
		if ((!reads && !call_is_pipe_poll(call)) || roles_is_result(study->roles, call->inode))
			continue;
		/* An index comes as header and payload, two reads without work in between. */
		if (taken_ns && !reads && batch_add(lane, &n_allocated, taken_ns, call->begin_ns) < 0)
			return -ENOMEM;
		taken_ns = reads && call->result > 0 ? call->end_ns : 0;
	}
	return 0;
}

#define CHAIN_MAX 8 /* maximum hops back from the end of one wait */

static int lanes_waits_find(const struct study *study, size_t max, struct lanes *lanes)
{
	const struct data_waits *waits = study->waits;

	lanes->waits = calloc(waits->n + 1, sizeof(*lanes->waits));
	if (!lanes->waits)
		return -ENOMEM;
	for (size_t i = data_waits_from(waits, study->window->begin_ns); i < waits->n; i++) {
		if (waits->items[i].begin_ns >= study->window->end_ns || lanes->n_waits == max)
			break;
		lanes->waits[lanes->n_waits++] = (struct lane_wait){
		    waits->items[i].begin_ns, waits->items[i].end_ns, study->split->fetch_ns[i]};
	}
	return 0;
}

/* Follows wake-ups back from the end of a wait: the thread that ended the last sleep, the thread that had
 * woken that one, ... */
static void chain_add(const struct study *study, const uint32_t *of_thread, const struct lane_wait *wait,
		      size_t max, struct lanes *lanes)
{
	const struct timeline *timeline = study->timeline;
	const struct timeline_thread *thread = study->roles->trainer;
	uint64_t at_ns = wait->end_ns;

	for (unsigned int hop = 0; hop < CHAIN_MAX && lanes->n_wakes < max; hop++) {
		const struct timeline_off *off = timeline_off_before(thread, at_ns);
		const struct timeline_thread *waker;
		uint32_t from, to;

		/* A sleep that an interrupt ended has no waker, so look further back. */
		while (off && off > thread->offs && off->begin_ns > wait->begin_ns &&
		       (!off->waker_tid || off->waking_ns >= at_ns))
			off--;
		if (!off || !off->waker_tid || off->waking_ns <= wait->begin_ns || off->waking_ns >= at_ns)
			return;
		waker = timeline_find(timeline, off->waker_tid, off->waking_ns);
		if (!waker || waker == thread)
			return;
		from = of_thread[waker - timeline->threads];
		to = of_thread[thread - timeline->threads];
		if (from == UINT32_MAX || to == UINT32_MAX)
			return;
		lanes->wakes[lanes->n_wakes++] =
		    (struct lane_wake){off->waking_ns, off->end_ns < at_ns ? off->end_ns : at_ns, from, to};
		thread = waker;
		at_ns = off->waking_ns;
	}
}

static int wake_compare(const void *left, const void *right)
{
	const struct lane_wake *a = left, *b = right;

	return a->run_ns < b->run_ns ? -1 : a->run_ns > b->run_ns;
}

/* of_thread[i]: lane of timeline->threads[i], or UINT32_MAX. -ENOMEM. */
static int lanes_wakes_find(const struct study *study, const uint32_t *of_thread, size_t max,
			    struct lanes *lanes)
{
	lanes->wakes = calloc(max, sizeof(*lanes->wakes));
	if (!lanes->wakes)
		return -ENOMEM;
	for (size_t i = 0; i < lanes->n_waits; i++)
		chain_add(study, of_thread, &lanes->waits[i], max, lanes);
	qsort(lanes->wakes, lanes->n_wakes, sizeof(*lanes->wakes), wake_compare);
	return 0;
}

static int lanes_gpu_calls_find(const struct study *study, const uint32_t *of_thread, size_t max,
				struct lanes *lanes)
{
	const struct timeline *timeline = study->timeline;
	const struct window *window = study->window;
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		n += of_thread[i] == UINT32_MAX ? 0 : timeline->threads[i].n_gpu_waits;
	n = n < max ? n : max;
	if (!n)
		return 0;
	lanes->gpu_calls = calloc(n, sizeof(*lanes->gpu_calls));
	if (!lanes->gpu_calls)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		for (size_t k = 0; of_thread[i] != UINT32_MAX && k < thread->n_gpu_waits; k++) {
			const struct timeline_gpu_wait *wait = &thread->gpu_waits[k];

			if (wait->begin_ns >= window->begin_ns && wait->end_ns <= window->end_ns &&
			    lanes->n_gpu_calls < n)
				lanes->gpu_calls[lanes->n_gpu_calls++] =
				    (struct lane_gpu_call){wait->begin_ns, wait->end_ns, of_thread[i],
							   gpu_function_name(wait->function)};
		}
	}
	return 0;
}

struct lane_change {
	uint64_t at_ns;
	int by;
};

static int change_compare(const void *left, const void *right)
{
	const struct lane_change *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Returns the time at which the step took its batch: the end of its last data wait. */
static uint64_t taken_ns(const struct lanes *lanes, const struct analysis_step *step, size_t *next_wait)
{
	uint64_t at_ns = step->begin_ns;

	for (; *next_wait < lanes->n_waits && lanes->waits[*next_wait].end_ns <= step->backward_ns;
	     ++*next_wait)
		if (lanes->waits[*next_wait].end_ns > step->begin_ns)
			at_ns = lanes->waits[*next_wait].end_ns;
	return at_ns;
}

/* The level rises when a worker finishes a batch and falls when a step takes one. The number of ready batches
 * before the window is not known, so the lowest level counts as 0. */
static int lanes_levels_find(const struct window *window, size_t max, struct lanes *lanes)
{
	struct lane_change *changes;
	size_t n = 0, next_wait = 0;
	int level = 0, lowest = 0;

	for (size_t i = 0; i < lanes->n_items; i++)
		n += lanes->items[i].n_batches;
	if (!n)
		return 0;
	changes = calloc(n + window->n_steps, sizeof(*changes));
	lanes->levels = calloc(max, sizeof(*lanes->levels));
	if (!changes || !lanes->levels) {
		free(changes);
		return -ENOMEM;
	}
	n = 0;
	for (size_t i = 0; i < lanes->n_items; i++)
		for (size_t k = 0; k < lanes->items[i].n_batches; k++)
			changes[n++] = (struct lane_change){lanes->items[i].batches[k].end_ns, 1};
	for (size_t i = 0; i < window->n_steps; i++)
		changes[n++] = (struct lane_change){taken_ns(lanes, &window->steps[i], &next_wait), -1};
	qsort(changes, n, sizeof(*changes), change_compare);
	for (size_t i = 0; i < n; i++) {
		level += changes[i].by;
		lowest = level < lowest ? level : lowest;
	}
	level = -lowest;
	for (size_t i = 0; i < n && lanes->n_levels < max; i++) {
		level += changes[i].by;
		lanes->levels[lanes->n_levels++] = (struct lane_level){changes[i].at_ns, (uint32_t)level};
	}
	free(changes);
	return 0;
}

#define LANES_MAX        64
#define HELPERS_MAX      8
#define HELPER_CPU_RATIO 0.005 /* minimum CPU time, as a fraction of the window */
#define EXACT_RATIO      0.4   /* maximum fraction of segments for excerpts */
#define WAKES_MAX        20000

/* Lanes under construction, and each thread's lane. */
struct lane_plan {
	const struct study *study;
	struct lanes *lanes;
	uint32_t *of_thread; /* lane of timeline->threads[i]; UINT32_MAX: none */
	struct interval_list exact;
};

static uint64_t begin_of(const struct lane_plan *plan, const struct timeline_thread *thread)
{
	uint64_t begin_ns = plan->study->window->begin_ns;

	return thread->first_ns > begin_ns ? thread->first_ns : begin_ns;
}

static uint64_t end_of(const struct lane_plan *plan, const struct timeline_thread *thread)
{
	uint64_t end_ns = plan->study->window->end_ns;

	return thread->last_ns < end_ns ? thread->last_ns : end_ns;
}

/* Returns true if no thread of the lane lived at the same time, so that the lane can take this thread too.
 * Threads are visited by tid, not by time, so any overlap counts. */
static bool lane_is_free(const struct lane_plan *plan, uint32_t lane, const struct timeline_thread *thread)
{
	const struct timeline *timeline = plan->study->timeline;

	for (size_t i = 0; i < timeline->n_threads; i++)
		if (plan->of_thread[i] == lane &&
		    begin_of(plan, &timeline->threads[i]) < end_of(plan, thread) &&
		    begin_of(plan, thread) < end_of(plan, &timeline->threads[i]))
			return false;
	return true;
}

static void lane_take(struct lane_plan *plan, size_t thread_index, enum lane_role role, const char *name)
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

static void take_all(struct lane_plan *plan, enum role of, enum lane_role role, const char *name)
{
	for (size_t i = 0; i < plan->study->timeline->n_threads; i++)
		if (plan->study->roles->of[i] == of)
			lane_take(plan, i, role, name);
}

static uint64_t cpu_in_window(const struct lane_plan *plan, const struct timeline_thread *thread)
{
	uint64_t begin_ns = begin_of(plan, thread), end_ns = end_of(plan, thread);

	if (thread == plan->study->roles->reader)
		return UINT64_MAX; /* the thread that reads results instead of the trainer */
	return begin_ns < end_ns ? timeline_account(thread, begin_ns, end_ns).cpu_ns : 0;
}

/* Gives lanes to the busiest other threads of the trainer's process. */
static int take_helpers(struct lane_plan *plan)
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

/* Returns an upper bound of the number of segments without cells. */
static size_t segments_estimate(const struct lane_plan *plan)
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
static int excerpt_add(struct lane_plan *plan, size_t middle, size_t n_steps, uint64_t cell_ns)
{
	const struct window *window = plan->study->window;
	size_t first = middle > n_steps / 2 ? middle - n_steps / 2 : 0;
	size_t last = first + n_steps - 1 < window->n_steps ? first + n_steps - 1 : window->n_steps - 1;
	uint64_t begin_ns = window->steps[first].begin_ns, end_ns = window->steps[last].end_ns;

	return interval_list_add(&plan->exact, begin_ns - begin_ns % cell_ns,
				 end_ns - end_ns % cell_ns + cell_ns);
}

/* Chooses the first steps, a typical one and the slowest, with as many steps around each as the segments
 * permit. */
static int excerpts_choose(struct lane_plan *plan, size_t n_segments, size_t n_max)
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

static int resolution_choose(struct lane_plan *plan, size_t n_max)
{
	const struct window *window = plan->study->window;
	size_t n_segments = segments_estimate(plan);
	size_t n_cells = (size_t)((1 - EXACT_RATIO) * (double)n_max) / plan->lanes->n_items + 1;

	if (n_segments <= n_max)
		return 0;
	plan->lanes->cell_ns = (window->end_ns - window->begin_ns) / n_cells + 1;
	return excerpts_choose(plan, n_segments, n_max);
}

/* Returns the lane's next thread, by start time. */
static size_t next_thread(const struct lane_plan *plan, uint32_t lane, uint64_t after_ns, size_t after_index)
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

static int lane_fill(struct lane_plan *plan, uint32_t index)
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

static int build(struct lane_plan *plan, size_t n_segments_max)
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
	struct lane_plan plan = {.study = study};
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
