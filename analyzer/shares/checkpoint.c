/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>

#include "bpf/event.h"
#include "analyzer/timeline/calls.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "analyzer/timeline/stack_work.h"

#define FILES_MAX     16 /* maximum files that are tracked while they are open for writing at the same time */
#define LOCK_WAIT_NS  UINT64_C(6000000) /* CPython's switch interval, plus a margin */
#define FOLLOW_CPU_NS UINT64_C(1500000) /* maximum CPU time between the close and fsync, rename and so on */

struct open_file {
	bool used;
	int32_t fd;
	uint64_t begin_ns;
	uint64_t written_bytes;
	uint64_t mapped_bytes;
	uint64_t large_bytes; /* part of written_bytes: large writes */
};

struct save_finder {
	const struct timeline_thread *thread;
	bool background;
	const uint64_t *steps;
	size_t n_steps;
	struct interval_list *found;
	uint64_t last_end_ns; /* end of the last checkpoint; 0: none */
	uint64_t mapped_ns;   /* when a file was opened that was only mapped until its close; 0: none */
	struct open_file files[FILES_MAX];
};

static bool step_within(const struct save_finder *finder, uint64_t begin_ns, uint64_t end_ns)
{
	size_t at = sorted_count(finder->n_steps, i, finder->steps[i] < begin_ns);

	return at < finder->n_steps && finder->steps[at] < end_ns;
}

static struct open_file *file_of(struct save_finder *finder, int32_t fd)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (finder->files[i].used && finder->files[i].fd == fd)
			return &finder->files[i];
	return NULL;
}

static void file_open(struct save_finder *finder, const struct timeline_call *call)
{
	struct open_file *file = file_of(finder, (int32_t)call->result);

	for (size_t i = 0; !file && i < FILES_MAX; i++)
		if (!finder->files[i].used)
			file = &finder->files[i];
	if (file)
		*file =
		    (struct open_file){.used = true, .fd = (int32_t)call->result, .begin_ns = call->begin_ns};
}

static int checkpoint_add(struct save_finder *finder, uint64_t begin_ns, uint64_t end_ns)
{
	if (end_ns > finder->last_end_ns)
		finder->last_end_ns = end_ns;
	return interval_list_add(finder->found, begin_ns, end_ns);
}

/* Adds a call that ends or secures a checkpoint. If the call directly follows the checkpoint, fills the
 * gap between them. */
static int follow_add(struct save_finder *finder, const struct timeline_call *call, bool alone)
{
	uint64_t begin_ns = call->begin_ns;

	if (finder->last_end_ns && finder->last_end_ns <= begin_ns &&
	    timeline_cpu_between(finder->thread, finder->last_end_ns, begin_ns) < FOLLOW_CPU_NS &&
	    !step_within(finder, finder->last_end_ns, call->end_ns))
		begin_ns = finder->last_end_ns;
	else if (!alone)
		return 0;
	return checkpoint_add(finder, begin_ns, call->end_ns);
}

/* Returns true if most bytes were written in large writes; a log grows by small ones. */
static bool in_bulk(const struct open_file *file)
{
	return 2 * (file->large_bytes + file->mapped_bytes) >= file->written_bytes + file->mapped_bytes;
}

static int file_close(struct save_finder *finder, const struct timeline_call *call)
{
	struct open_file *file = file_of(finder, call->fd);
	struct open_file closed;

	if (!file)
		return 0;
	closed = *file;
	file->used = false;
	if (closed.written_bytes <= CHECKPOINT_MIN_BYTES && closed.mapped_bytes > CHECKPOINT_MIN_BYTES &&
	    !finder->mapped_ns)
		finder->mapped_ns = closed.begin_ns;
	if (closed.written_bytes + closed.mapped_bytes <= CHECKPOINT_MIN_BYTES)
		return 0;
	if (step_within(finder, closed.begin_ns, call->end_ns) && !(finder->background && in_bulk(&closed)))
		return 0;
	return checkpoint_add(finder, closed.begin_ns, call->end_ns);
}

/* Adds a sync of pages that were written through a mapping, from the opening of the file on. */
static int sync_add(struct save_finder *finder, const struct timeline_call *call)
{
	uint64_t mapped_ns = finder->mapped_ns;

	finder->mapped_ns = 0;
	if (mapped_ns && !step_within(finder, mapped_ns, call->end_ns))
		return checkpoint_add(finder, mapped_ns, call->end_ns);
	return follow_add(finder, call, true);
}

static int call_add(struct save_finder *finder, const struct timeline_call *call)
{
	if (call_is_open_write(call)) {
		file_open(finder, call);
	} else if (call_is_file_write(call)) {
		struct open_file *file = file_of(finder, call->fd);
		uint64_t bytes = call->result > 0 ? (uint64_t)call->result : 0;

		if (file)
			file->written_bytes += bytes;
		if (file && bytes > CHECKPOINT_MIN_BYTES)
			file->large_bytes += bytes;
		if (bytes > CHECKPOINT_MIN_BYTES)
			return checkpoint_add(finder, call->begin_ns, call->end_ns);
	} else if (call_is_map(call)) {
		struct open_file *file = file_of(finder, call->fd);

		/* Shared memory, into which a state is copied for another process to write, does not count
		 * as a file. */
		if (file && call->result > 0 && call->source != SOURCE_MEMORY)
			file->mapped_bytes += call->argument;
	} else if (call_is_sync(call)) {
		return sync_add(finder, call);
	} else if (call_is_rename(call)) {
		return follow_add(finder, call, false);
	} else if (call_is_close(call)) {
		return file_close(finder, call);
	}
	return 0;
}

static int calls_add(const struct checkpoint_input *input, const struct timeline_thread *thread,
		     bool background, struct interval_list *found)
{
	struct save_finder finder = {.thread = thread,
				     .background = background,
				     .steps = input->steps,
				     .n_steps = input->n_steps,
				     .found = found};

	for (size_t i = 0; i < thread->n_calls; i++) {
		int r = call_add(&finder, &thread->calls[i]);

		if (r < 0)
			return r;
	}
	interval_list_tidy(found);
	return 0;
}

/* Removes the writes of a compiler, even those before the first sample of compiling, unless a sample there
 * shows other work. */
static int drop_compiled(const struct checkpoint_input *input, const struct timeline_thread *thread,
			 struct interval_list *calls)
{
	const struct stack_bounds bounds = {.times = input->steps, .n_times = input->n_steps, .wide = true};
	_cleanup_(interval_list_free) struct interval_list spans = {0};
	int r = calls->n ? stack_spans_find(input->samples, thread, STACK_COMPILE, &bounds, &spans) : 0;
	size_t n = 0;

	interval_list_tidy(&spans);
	for (size_t i = 0; i < calls->n; i++) {
		const struct interval call = calls->items[i];

		if (2 * interval_list_cover(&spans, call.begin_ns, call.end_ns) < call.end_ns - call.begin_ns)
			calls->items[n++] = call;
	}
	calls->n = n;
	return r;
}

int checkpoints_find(const struct checkpoint_input *input, const struct timeline_thread *thread,
		     bool background, struct interval_list *checkpoints)
{
	_cleanup_(interval_list_free) struct interval_list calls = {0}, spans = {0};
	const struct stack_bounds bounds = {.times = background ? NULL : input->steps,
					    .n_times = background ? 0 : input->n_steps,
					    .known = &calls,
					    .asleep_max_ns = background ? STACK_BACKGROUND_SLEEP_NS : 0};
	int r = calls_add(input, thread, background, &calls);

	if (r == 0)
		r = drop_compiled(input, thread, &calls);
	if (r == 0)
		r = stack_spans_find(input->samples, thread, STACK_SAVE, &bounds, &spans);
	if (r == 0)
		r = interval_list_append(checkpoints, &calls);
	return r == 0 ? interval_list_append(checkpoints, &spans) : r;
}

bool checkpoint_is_child(const struct roles *roles, const struct timeline_thread *thread)
{
	return thread->parent_tgid == roles->trainer->tgid && thread->tgid != roles->trainer->tgid;
}

bool checkpoint_ends(const struct timeline *timeline, const uint8_t *saves, const struct timeline_off *off)
{
	const struct timeline_thread *waker = timeline_waker(timeline, off);

	return waker && saves[waker - timeline->threads];
}

/* Returns true if a sleep is too long to be for a lock that both threads share. */
static bool outlasts_locks(const struct timeline_off *off)
{
	return !timeline_off_blocks(off) && off->waking_ns - off->begin_ns > LOCK_WAIT_NS;
}

bool checkpoint_awaited(const struct timeline *timeline, const uint8_t *saves, const struct timeline_off *off)
{
	return outlasts_locks(off) && checkpoint_ends(timeline, saves, off);
}

bool checkpoint_handed(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_off *off)
{
	return outlasts_locks(off) && timeline_waker(timeline, off) == roles->trainer;
}

/* Returns true for a thread of a saving child: a thread other than the writer may report that the save is
 * done. */
static bool of_saving_child(const struct timeline *timeline, const struct roles *roles, const uint8_t *saves,
			    const struct timeline_thread *thread)
{
	if (!checkpoint_is_child(roles, thread))
		return false;
	for (size_t i = 0; i < timeline->n_threads; i++)
		if (saves[i] && timeline_same_process(&timeline->threads[i], thread))
			return true;
	return false;
}

/* Returns true if a thread that saves ended this sleep of another thread of the trainer's process, which
 * waits for a save at that time. If no child saves, the sleep must be too long to be for a lock. */
static bool waits_for_save(const struct timeline *timeline, const struct roles *roles,
			   const struct saves_found *found, const uint8_t *saves,
			   const struct timeline_off *off)
{
	const struct timeline_thread *waker = timeline_waker(timeline, off);

	return waker && saves[waker - timeline->threads] &&
	       (interval_list_cover(found->of_helpers, off->begin_ns, off->waking_ns) > 0 ||
		interval_list_cover(found->of_children, off->begin_ns, off->waking_ns) > 0) &&
	       (checkpoint_is_child(roles, waker) || checkpoint_awaited(timeline, saves, off));
}

void checkpoint_savers_add(const struct timeline *timeline, const struct roles *roles,
			   const struct saves_found *found, uint8_t *saves)
{
	bool children = false, more = false;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		more |= saves[i] > 0;
		children |= saves[i] && checkpoint_is_child(roles, &timeline->threads[i]);
	}
	for (size_t i = 0; children && i < timeline->n_threads; i++)
		if (!saves[i] && of_saving_child(timeline, roles, saves, &timeline->threads[i]))
			saves[i] = 1;
	/* One thread may wait for another one, which waits for the writer. */
	while (more) {
		more = false;
		for (size_t i = 0; i < timeline->n_threads; i++) {
			const struct timeline_thread *thread = &timeline->threads[i];

			for (size_t k = 0; roles->of[i] == ROLE_HELPER && k < thread->n_offs && !saves[i];
			     k++) {
				saves[i] = waits_for_save(timeline, roles, found, saves, &thread->offs[k]);
				more |= saves[i] > 0;
			}
		}
	}
}

/* Returns true if the thread's process was created while the trainer's process compiled: it compiles, too. */
static bool compiling_made(const struct compiling *compiling, const struct timeline *timeline,
			   const struct timeline_thread *thread)
{
	const struct timeline_thread *leader = timeline_find(timeline, thread->tgid, thread->first_ns);
	uint64_t born_ns = leader ? leader->born_ns : 0;

	return born_ns && interval_list_cover(&compiling->process, born_ns, born_ns + 1);
}

int checkpoints_of_children(const struct checkpoint_input *input, const struct timeline *timeline,
			    const struct roles *roles, uint8_t *saves, struct interval_list *checkpoints)
{
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t first = checkpoints->n;
		int r;

		if (roles->of[i] != ROLE_OTHER || !checkpoint_is_child(roles, thread) ||
		    compiling_made(input->compiling, timeline, thread))
			continue;
		r = checkpoints_find(input, thread, true, checkpoints);
		if (r < 0)
			return r;
		saves[i] = checkpoints->n > first;
		if (saves[i] && thread->born_ns && thread->tid == thread->tgid &&
		    thread->born_ns < checkpoints->items[first].begin_ns)
			checkpoints->items[first].begin_ns = thread->born_ns;
	}
	interval_list_tidy(checkpoints);
	return 0;
}
