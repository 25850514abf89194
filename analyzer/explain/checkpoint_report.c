/* SPDX-License-Identifier: Apache-2.0 */
#include "finders.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "analyzer/analysis.h"
#include "analyzer/base/times.h"
#include "checkpoint_cost.h"
#include "analyzer/timeline/calls.h"
#include "analyzer/shares/checkpoint.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "analyzer/shares/partition.h"
#include "analyzer/waits/window.h"

#define FDS_MAX 1024 /* tracked descriptors; enough, because Linux assigns the lowest free number */

#define WHOLE 0.98 /* minimum part of the largest save's bytes that a whole save has */

struct checkpoint_finder {
	const struct study *study;
	struct interval_list spans;
	struct checkpoint_report *report;
};

uint32_t checkpoint_interval(double full_ns, double stall_ns, double step_ns, double overhead_max)
{
	double k = 1;

	if (!(step_ns > 0) || !(overhead_max > 0) || !(full_ns >= stall_ns))
		return 0;
	k = fmax(k, ceil((full_ns - stall_ns) / step_ns));
	k = fmax(k, ceil(stall_ns / (overhead_max * step_ns)));
	return k < UINT32_MAX ? (uint32_t)k : UINT32_MAX;
}

static int spans_add(struct checkpoint_finder *finder, const struct interval_list *from)
{
	const struct window *window = finder->study->window;

	for (size_t i = interval_list_from(from, window->begin_ns); i < from->n; i++) {
		if (from->items[i].begin_ns >= window->end_ns)
			break;
		if (interval_list_add(&finder->spans, from->items[i].begin_ns, from->items[i].end_ns) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Returns the number of backward passes up to at_ns. */
static size_t steps_until(const struct window *window, uint64_t at_ns)
{
	return sorted_count(window->n_steps, i, window->steps[i].backward_ns <= at_ns);
}

/* Returns the end of the writing that is under way at at_ns, if it ends before the trainer's own save does;
 * else at_ns. A save that is known from stack samples seems to begin up to half a sampling interval too
 * early. */
static uint64_t turn_at(const struct interval_list *writing, const struct interval *own, uint64_t at_ns)
{
	size_t i = interval_list_from(writing, at_ns);

	if (i == writing->n || writing->items[i].begin_ns > at_ns || writing->items[i].end_ns >= own->end_ns)
		return at_ns;
	return writing->items[i].end_ns;
}

/* If the trainer saves after another thread or process wrote, its save is the next checkpoint. */
static int turns_find(const struct partition *partition, struct interval_list *ends)
{
	const struct interval_list *const others[] = {&partition->helper_checkpoints,
						      &partition->child_checkpoints};
	uint64_t before_ns = 0;

	for (size_t i = 0; i < partition->checkpoints.n; i++) {
		const struct interval *own = &partition->checkpoints.items[i];
		uint64_t at_ns = own->begin_ns, written_ns = 0;

		for (size_t k = 0; k < sizeof(others) / sizeof(*others); k++) {
			written_ns += interval_list_cover(others[k], before_ns, own->begin_ns);
			at_ns = turn_at(others[k], own, at_ns);
		}
		if (written_ns && interval_list_add(ends, at_ns, at_ns + 1) < 0)
			return -ENOMEM;
		before_ns = own->end_ns;
	}
	return 0;
}

/* Finds when saves end, also by the ends of the trainer's waits for them. */
static int ends_find(const struct study *study, struct interval_list *ends)
{
	const struct timeline_thread *trainer = study->roles->trainer;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (checkpoint_awaited(study->timeline, study->partition->saves, off) &&
		    interval_list_add(ends, off->waking_ns, off->waking_ns + 1) < 0)
			return -ENOMEM;
	}
	if (turns_find(study->partition, ends) < 0)
		return -ENOMEM;
	interval_list_tidy(ends);
	return 0;
}

/* Finds when the trainer hands saves over to threads. */
static int handovers_find(const struct study *study, struct interval_list *handed)
{
	for (size_t i = 0; i < study->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &study->timeline->threads[i];

		if (!study->partition->saves[i])
			continue;
		for (size_t k = 0; k < thread->n_offs; k++) {
			const struct timeline_off *off = &thread->offs[k];

			if (checkpoint_handed(study->timeline, study->roles, off) &&
			    interval_list_add(handed, off->waking_ns, off->waking_ns + 1) < 0)
				return -ENOMEM;
		}
	}
	interval_list_tidy(handed);
	return 0;
}

/* Cuts the tidy spans at each end. */
static int spans_cut(struct interval_list *spans, const struct interval_list *ends)
{
	struct interval_list cut = {0};
	int r = 0;

	for (size_t i = 0; i < spans->n && r >= 0; i++) {
		uint64_t begin_ns = spans->items[i].begin_ns, end_ns = spans->items[i].end_ns;

		for (size_t k = interval_list_from(ends, begin_ns); k < ends->n && r >= 0; k++) {
			if (ends->items[k].begin_ns >= end_ns)
				break;
			r = interval_list_add(&cut, begin_ns, ends->items[k].begin_ns);
			begin_ns = ends->items[k].begin_ns;
		}
		if (r >= 0)
			r = interval_list_add(&cut, begin_ns, end_ns);
	}
	interval_list_free(spans);
	*spans = cut;
	return r;
}

/* Joins spans without a backward pass in between into one checkpoint, unless a checkpoint ended or was handed
 * over there. */
static void spans_join(struct checkpoint_finder *finder, const struct interval_list *ends,
		       const struct interval_list *handed)
{
	const struct window *window = finder->study->window;
	struct interval_list *spans = &finder->spans;
	size_t n = 0;

	for (size_t i = 1; i < spans->n; i++) {
		uint64_t end_ns = spans->items[n].end_ns, begin_ns = spans->items[i].begin_ns;

		if (steps_until(window, end_ns) == steps_until(window, begin_ns) &&
		    !interval_list_cover(ends, end_ns, begin_ns + 1) &&
		    !interval_list_cover(handed, end_ns, begin_ns + 1))
			spans->items[n].end_ns = spans->items[i].end_ns;
		else
			spans->items[++n] = spans->items[i];
	}
	if (spans->n)
		spans->n = n + 1;
}

static struct checkpoint_item *item_at(struct checkpoint_report *report, uint64_t at_ns)
{
	size_t at = sorted_count(report->n_items, i, report->items[i].end_ns < at_ns);

	return at < report->n_items && report->items[at].begin_ns <= at_ns ? &report->items[at] : NULL;
}

/* The descriptors that a thread has open for writing. */
struct writable {
	uint8_t open[FDS_MAX];
};

static void writable_note(struct writable *writable, const struct timeline_call *call)
{
	if (call_is_open_write(call) && call->result >= 0 && call->result < FDS_MAX)
		writable->open[call->result] = 1;
	else if (call_is_close(call) && call->fd >= 0 && call->fd < FDS_MAX)
		writable->open[call->fd] = 0;
}

static bool maps_for_writing(const struct writable *writable, const struct timeline_call *call)
{
	return call_is_map(call) && call->result > 0 && call->source != SOURCE_MEMORY && call->fd >= 0 &&
	       call->fd < FDS_MAX && writable->open[call->fd];
}

static void call_add(struct checkpoint_finder *finder, const struct timeline_thread *thread,
		     const struct writable *writable, const struct timeline_call *call)
{
	bool writes = call_is_file_write(call), syncs = call_is_sync(call);
	struct checkpoint_item *item;

	if (!writes && !syncs && !maps_for_writing(writable, call))
		return;
	item = item_at(finder->report, call->begin_ns);
	if (!item)
		return;
	if (writes && call->result > 0)
		item->bytes += (uint64_t)call->result;
	else if (!writes && !syncs)
		item->bytes += call->argument;
	if (thread == finder->study->roles->trainer && (writes || syncs))
		item->own_ns += call->end_ns - call->begin_ns;
	if (writes && (!item->first_ns || call->begin_ns < item->first_ns))
		item->first_ns = call->begin_ns;
	if (writes)
		item->write_ns += call->end_ns - call->begin_ns;
	if (syncs)
		item->fsync_ns += call->end_ns - call->begin_ns;
	if (writes || syncs)
		item->writeback_ns += timeline_account(thread, call->begin_ns, call->end_ns).block_ns;
	item->background |= thread != finder->study->roles->trainer;
}

static void thread_add(struct checkpoint_finder *finder, const struct timeline_thread *thread)
{
	struct writable writable = {0};

	for (size_t i = 0; i < thread->n_calls; i++) {
		writable_note(&writable, &thread->calls[i]);
		call_add(finder, thread, &writable, &thread->calls[i]);
	}
}

/* Returns true if the trainer only copied the state, and another thread or process wrote the copy within
 * `next`. */
static bool is_copy(const struct checkpoint_finder *finder, const struct interval_list *ends,
		    const struct checkpoint_item *item, const struct checkpoint_item *next)
{
	return next->background && next->bytes > CHECKPOINT_MIN_BYTES &&
	       interval_list_cover(&finder->study->partition->checkpoints, item->begin_ns, item->end_ns) &&
	       !interval_list_cover(ends, item->end_ns, next->begin_ns + 1);
}

static void item_add(struct checkpoint_item *sum, const struct checkpoint_item *item)
{
	sum->end_ns = item->end_ns;
	sum->own_ns += item->own_ns;
	sum->first_ns = sum->first_ns ? sum->first_ns : item->first_ns;
	sum->bytes += item->bytes;
	sum->write_ns += item->write_ns;
	sum->fsync_ns += item->fsync_ns;
	sum->writeback_ns += item->writeback_ns;
}

/* Returns true for a save that has as many bytes as the largest one. */
static bool is_whole(const struct checkpoint_item *item, uint64_t most)
{
	return (double)item->bytes >= WHOLE * (double)most;
}

/* Returns the most time between two pieces of a save: a quarter of the time between whole saves. */
static uint64_t pause_find(const struct checkpoint_report *report, uint64_t most)
{
	uint64_t first_ns = 0, last_ns = 0, n = 0;

	for (size_t i = 0; i < report->n_items; i++) {
		if (!is_whole(&report->items[i], most))
			continue;
		first_ns = n++ ? first_ns : report->items[i].begin_ns;
		last_ns = report->items[i].begin_ns;
	}
	return max_ns(STACK_BACKGROUND_SLEEP_NS, n > 1 ? (last_ns - first_ns) / (n - 1) / 4 : 0);
}

/* Joins the pieces of saves in the background that are written with pauses, or in which the trainer waits
 * (orbax): pieces that have together as many bytes as the largest save. */
static void items_join(struct checkpoint_report *report)
{
	struct checkpoint_item *items = report->items;
	uint64_t most = 0, pause_ns;
	size_t n = 0, next;

	for (size_t i = 0; i < report->n_items; i++)
		most = max_ns(most, items[i].bytes);
	pause_ns = pause_find(report, most);
	for (size_t i = 0; i < report->n_items; i = next) {
		struct checkpoint_item sum = items[i];

		for (next = i + 1; next < report->n_items && items[next].background && sum.background &&
				   items[next].begin_ns <= sum.end_ns + pause_ns &&
				   (double)(sum.bytes + items[next].bytes) <= (double)most / WHOLE;
		     next++)
			item_add(&sum, &items[next]);
		if (!is_whole(&sum, most)) {
			sum = items[i];
			next = i + 1;
		}
		items[n++] = sum;
	}
	report->n_items = n;
}

/* Drops items that wrote next to nothing: copies that are written later, or syncs of logs and the like. */
static void items_keep(struct checkpoint_finder *finder, const struct interval_list *ends)
{
	struct checkpoint_report *report = finder->report;
	size_t n = 0;

	for (size_t i = 0; i < report->n_items; i++) {
		struct checkpoint_item *item = &report->items[i];

		if (item->bytes > CHECKPOINT_MIN_BYTES)
			report->items[n++] = *item;
		else if (i + 1 < report->n_items && is_copy(finder, ends, item, item + 1))
			item[1].begin_ns = item->begin_ns;
	}
	report->n_items = n;
	items_join(report);
	for (size_t i = 0; i < report->n_items; i++)
		report->n_background += report->items[i].background;
}

static int items_make(struct checkpoint_finder *finder, const struct interval_list *ends)
{
	const struct study *study = finder->study;
	struct checkpoint_report *report = finder->report;

	report->items = calloc(finder->spans.n + 1, sizeof(*report->items));
	if (!report->items)
		return -ENOMEM;
	for (size_t i = 0; i < finder->spans.n; i++)
		report->items[report->n_items++] =
		    (struct checkpoint_item){.begin_ns = finder->spans.items[i].begin_ns,
					     .end_ns = finder->spans.items[i].end_ns,
					     .copy_ns = NAN,
					     .tail_ns = NAN};
	for (size_t i = 0; i < study->timeline->n_threads; i++) {
		const struct timeline_thread *thread = &study->timeline->threads[i];
		enum role role = (enum role)study->roles->of[i];

		if (role == ROLE_TRAINER || role == ROLE_HELPER ||
		    (role == ROLE_OTHER && checkpoint_is_child(study->roles, thread)))
			thread_add(finder, thread);
	}
	items_keep(finder, ends);
	return 0;
}

/* Only steps are measured, so a checkpoint that reaches over an edge of the window is cut there. */
static void stall_fill(struct checkpoint_finder *finder, struct checkpoint_item *item)
{
	const struct window *window = finder->study->window;
	uint64_t begin_ns = item->begin_ns > window->begin_ns ? item->begin_ns : window->begin_ns;
	uint64_t end_ns = item->end_ns < window->end_ns ? item->end_ns : window->end_ns;
	uint64_t share_ns[SHARE_COUNT] = {0};

	if (begin_ns < end_ns)
		partition_interval(finder->study->partition, begin_ns, end_ns, share_ns);
	item->stall_ns = share_ns[SHARE_CHECKPOINT_STALL];
}

/* Sets the mean number of steps from one checkpoint to the next. */
static void interval_set(struct checkpoint_finder *finder)
{
	struct checkpoint_report *report = finder->report;
	const struct window *window = finder->study->window;

	report->interval_steps = NAN;
	if (report->n_items > 1)
		report->interval_steps =
		    (double)(steps_until(window, report->items[report->n_items - 1].begin_ns) -
			     steps_until(window, report->items[0].begin_ns)) /
		    (double)(report->n_items - 1);
}

static int find(struct checkpoint_finder *finder, uint64_t stall_ns)
{
	const struct partition *partition = finder->study->partition;
	struct interval_list ends = {0}, handed = {0};
	int r = spans_add(finder, &partition->checkpoints);

	if (r == 0)
		r = spans_add(finder, &partition->helper_checkpoints);
	if (r == 0)
		r = spans_add(finder, &partition->child_checkpoints);
	if (r < 0)
		return r;
	interval_list_tidy(&finder->spans);
	r = ends_find(finder->study, &ends);
	if (r == 0)
		r = handovers_find(finder->study, &handed);
	if (r == 0)
		r = spans_cut(&finder->spans, &ends);
	spans_join(finder, &ends, &handed);
	if (r == 0)
		r = items_make(finder, &ends);
	interval_list_free(&ends);
	interval_list_free(&handed);
	if (r == 0 && finder->report->n_items) {
		for (size_t i = 0; i < finder->report->n_items; i++)
			stall_fill(finder, &finder->report->items[i]);
		interval_set(finder);
		r = checkpoint_cost_find(finder->study, stall_ns, finder->report);
	}
	return r;
}

static void checkpoint_report_freep(struct checkpoint_report **report)
{
	checkpoint_report_free(*report);
}

int checkpoint_report_find(const struct study *study, uint64_t stall_ns,
			   struct checkpoint_report **ret_report)
{
	_cleanup_(checkpoint_report_freep) struct checkpoint_report *report = calloc(1, sizeof(*report));
	struct checkpoint_finder finder = {.study = study, .report = report};
	int r;

	if (!report)
		return -ENOMEM;
	report->overhead_max = study->input->checkpoint_overhead_max > 0
				   ? study->input->checkpoint_overhead_max
				   : CHECKPOINT_OVERHEAD_MAX;
	r = find(&finder, stall_ns);
	interval_list_free(&finder.spans);
	if (r == 0 && report->n_items)
		*ret_report = steal_pointer(report);
	return r;
}

void checkpoint_report_free(struct checkpoint_report *report)
{
	if (!report)
		return;
	free(report->tail);
	free(report->items);
	free(report);
}
