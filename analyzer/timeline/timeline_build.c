/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/event.h"
#include "calls.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

/*
 * In a gap of the recording a thread's records are missing, and "no interval off the CPU" would read as
 * computing. So each thread gets intervals of unknown state for what the gaps leave open: those parts of a
 * gap, within its life, that no record of it covers.
 */

struct builder {
	struct timeline_off *offs;
	size_t n, n_allocated;
};

static int add_off(struct builder *builder, struct timeline_off off)
{
	if (array_reserve(builder->offs, builder->n, builder->n_allocated) < 0)
		return -ENOMEM;
	builder->offs[builder->n++] = off;
	return 0;
}

static int add_unknown(struct builder *builder, uint64_t begin_ns, uint64_t end_ns)
{
	const struct timeline_off off = {.begin_ns = begin_ns,
					 .waking_ns = end_ns,
					 .end_ns = end_ns,
					 .state = TIMELINE_UNKNOWN,
					 .exec_ns = builder->n ? builder->offs[builder->n - 1].exec_ns : 0};

	return begin_ns < end_ns ? add_off(builder, off) : 0;
}

/* Adds intervals of unknown state for the gaps between two records of a thread. */
static int fill_between(struct builder *builder, const struct interval_list *gaps, uint64_t begin_ns,
			uint64_t end_ns)
{
	for (size_t i = interval_list_from(gaps, begin_ns); i < gaps->n && gaps->items[i].begin_ns < end_ns;
	     i++) {
		struct interval gap = gaps->items[i];
		int r = add_unknown(builder, gap.begin_ns > begin_ns ? gap.begin_ns : begin_ns,
				    gap.end_ns < end_ns ? gap.end_ns : end_ns);

		if (r < 0)
			return r;
	}
	return 0;
}

static int fill_thread(struct builder *builder, const struct interval_list *gaps,
		       const struct timeline_thread *thread)
{
	uint64_t at_ns = thread->first_ns;
	int r = 0;

	for (size_t i = 0; i < thread->n_offs && r == 0; i++) {
		const struct timeline_off *off = &thread->offs[i];

		r = fill_between(builder, gaps, at_ns, off->begin_ns);
		if (r == 0)
			r = add_off(builder, *off);
		at_ns = off->end_ns;
	}
	return r < 0 ? r : fill_between(builder, gaps, at_ns, thread->last_ns);
}

/* -ENOMEM. */
static int timeline_fill_gaps(struct timeline *timeline)
{
	struct builder builder = {0};
	size_t *begins;

	if (!timeline->gaps.n)
		return 0;
	begins = calloc(timeline->n_threads + 1, sizeof(*begins));
	if (!begins)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		begins[i] = builder.n;
		if (fill_thread(&builder, &timeline->gaps, &timeline->threads[i]) < 0) {
			free(begins);
			free(builder.offs);
			return -ENOMEM;
		}
	}
	begins[timeline->n_threads] = builder.n;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		/* NULL + 0 is undefined: a recording may have gaps in which no thread was off its core */
		timeline->threads[i].offs = builder.offs ? &builder.offs[begins[i]] : NULL;
		timeline->threads[i].n_offs = begins[i + 1] - begins[i];
	}
	free(begins);
	free(timeline->offs);
	timeline->offs = builder.offs;
	return 0;
}

/* The threads of a recording: a thread's key is (tid, time of the fork), because tids are reused. */

struct birth {
	uint32_t tid, tgid, creator_tid;
	uint64_t born_ns; /* 0: before the recording; every tid with records has such an entry, too */
};

/* Sums of two times must not overflow; 2^62 ns are 146 years of uptime. */
#define TIMELINE_TIME_MAX_NS (UINT64_C(1) << 62)

#define FIRST_CAPACITY 4096

/* When this list is full, it is tidied before it grows, because there are far fewer births than events. */
struct birth_list {
	struct birth *items;
	size_t n, capacity;
};

static int birth_compare(const void *left, const void *right)
{
	const struct birth *a = left, *b = right;

	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	if (a->born_ns != b->born_ns)
		return a->born_ns < b->born_ns ? -1 : 1;
	return 0;
}

/* Returns true for a record of a thread that does not contradict itself. */
static bool timeline_usable(const struct event *event)
{
	return event->tid && event->end_ns >= event->start_ns && event->end_ns < TIMELINE_TIME_MAX_NS &&
	       event->type >= EVENT_SWITCH && event->type < EVENT_TYPE_LIMIT && event->type != EVENT_GAP &&
	       event->type != EVENT_LOSS;
}

static void tidy(struct birth_list *list)
{
	size_t n = 0;

	qsort(list->items, list->n, sizeof(*list->items), birth_compare);
	for (size_t i = 0; i < list->n; i++)
		if (!n || birth_compare(&list->items[n - 1], &list->items[i]))
			list->items[n++] = list->items[i];
	list->n = n;
}

static int add(struct birth_list *list, struct birth birth)
{
	if (list->n == list->capacity) {
		size_t capacity = list->capacity ? 2 * list->capacity : FIRST_CAPACITY;
		struct birth *grown;

		if (list->n)
			tidy(list);
		if (list->n >= list->capacity / 2) {
			grown = reallocarray(list->items, capacity, sizeof(*grown));
			if (!grown)
				return -ENOMEM;
			list->items = grown;
			list->capacity = capacity;
		}
	}
	list->items[list->n++] = birth;
	return 0;
}

static int add_of(struct birth_list *list, const struct event *event, uint32_t last_tid)
{
	int r = 0;

	if (event->tid != last_tid)
		r = add(list, (struct birth){.tid = event->tid, .tgid = event->tgid});
	if (r == 0 && event->type == EVENT_FORK && event->fork.child_tid)
		r = add(list, (struct birth){.tid = event->fork.child_tid,
					     .tgid = event->fork.child_tgid,
					     .creator_tid = event->tid,
					     .born_ns = event->end_ns});
	return r;
}

/* Lists the births, sorted by tid, then birth. The caller frees the list. -ENOMEM. */
static int timeline_births(const struct event *events, size_t n_events, struct birth **ret_births,
			   size_t *ret_n)
{
	struct birth_list list = {0};
	uint32_t last_tid = 0;

	for (size_t i = 0; i < n_events; i++) {
		if (!timeline_usable(&events[i]))
			continue;
		if (add_of(&list, &events[i], last_tid) < 0) {
			free(list.items);
			return -ENOMEM;
		}
		last_tid = events[i].tid;
	}
	if (list.n)
		tidy(&list);
	*ret_births = list.items;
	*ret_n = list.n;
	return 0;
}

/* The build first finds all threads, then counts their records, then copies and sorts these. */

static struct timeline_thread *thread_of(struct timeline *timeline, const struct event *event)
{
	const struct timeline_thread *threads = timeline->threads;
	size_t n = sorted_count(timeline->n_threads, i,
				threads[i].tid < event->tid ||
				    (threads[i].tid == event->tid && threads[i].born_ns <= event->end_ns));

	/* timeline_births() made one at time 0 for every tid that has records. */
	return &timeline->threads[n - 1];
}

static int threads_make(struct timeline *timeline, const struct event *events, size_t n_events)
{
	struct birth *births = NULL;
	size_t n = 0;

	if (timeline_births(events, n_events, &births, &n) < 0)
		return -ENOMEM;
	timeline->threads = calloc(n + 1, sizeof(*timeline->threads));
	if (timeline->threads) {
		timeline->n_threads = n;
		for (size_t i = 0; i < n; i++)
			timeline->threads[i] = (struct timeline_thread){
			    .tid = births[i].tid,
			    .tgid = births[i].tgid,
			    .creator_tid = births[i].creator_tid,
			    .born_ns = births[i].born_ns,
			    .first_ns = births[i].born_ns ? births[i].born_ns : UINT64_MAX,
			    .last_ns = births[i].born_ns,
			};
	}
	free(births);
	return timeline->threads ? 0 : -ENOMEM;
}

/* Records lives and names, and counts the records that are copied later. */
static void thread_note(struct timeline_thread *thread, const struct event *event)
{
	if (event->type == EVENT_GPU_TOTALS) /* its process may have ended long ago */
		return;
	thread->tgid = event->tgid;
	if (event->start_ns < thread->first_ns && event->start_ns >= thread->born_ns)
		thread->first_ns = event->start_ns;
	if (event->end_ns > thread->last_ns)
		thread->last_ns = event->end_ns;
	switch ((enum event_type)event->type) {
	case EVENT_SWITCH: thread->n_offs++; break;
	case EVENT_SYSCALL:
	case EVENT_CALLS:
	case EVENT_FAULT: thread->n_calls++; break;
	case EVENT_MARK: thread->n_marks++; break;
	case EVENT_STEP: thread->n_steps++; break;
	case EVENT_GPU_WAIT: thread->n_gpu_waits++; break;
	case EVENT_EXIT: thread->exit_ns = event->end_ns; break;
	case EVENT_NAME:
	case EVENT_ALIVE:
		memcpy(thread->comm, event->name.comm, sizeof(thread->comm));
		thread->comm[sizeof(thread->comm) - 1] = '\0';
		thread->parent_tgid = event->name.parent_tgid;
		thread->ns_tid = event->name.ns_tid;
		break;
	default: break;
	}
}

/* Makes one backing array for each kind of record, gives each thread its part, and resets the counts to 0
 * for filling. */
static int arrays_make(struct timeline *timeline)
{
	size_t n_offs = 0, n_calls = 0, n_marks = 0, n_steps = 0, n_gpu_waits = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		n_offs += timeline->threads[i].n_offs;
		n_calls += timeline->threads[i].n_calls;
		n_marks += timeline->threads[i].n_marks;
		n_steps += timeline->threads[i].n_steps;
		n_gpu_waits += timeline->threads[i].n_gpu_waits;
	}
	timeline->offs = calloc(n_offs + 1, sizeof(*timeline->offs));
	timeline->calls = calloc(n_calls + 1, sizeof(*timeline->calls));
	timeline->marks = calloc(n_marks + 1, sizeof(*timeline->marks));
	timeline->steps = calloc(n_steps + 1, sizeof(*timeline->steps));
	timeline->gpu_waits = calloc(n_gpu_waits + 1, sizeof(*timeline->gpu_waits));
	if (!timeline->gpu_waits || !timeline->offs || !timeline->calls || !timeline->marks ||
	    !timeline->steps)
		return -ENOMEM;
	n_offs = n_calls = n_marks = n_steps = n_gpu_waits = 0;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		struct timeline_thread *thread = &timeline->threads[i];

		thread->offs = timeline->offs + n_offs;
		thread->calls = timeline->calls + n_calls;
		thread->marks = timeline->marks + n_marks;
		thread->steps = timeline->steps + n_steps;
		thread->gpu_waits = timeline->gpu_waits + n_gpu_waits;
		n_offs += thread->n_offs;
		n_calls += thread->n_calls;
		n_marks += thread->n_marks;
		n_steps += thread->n_steps;
		n_gpu_waits += thread->n_gpu_waits;
		thread->n_offs = thread->n_calls = thread->n_marks = thread->n_steps = thread->n_gpu_waits =
		    0;
	}
	return 0;
}

static struct timeline_off off_from(const struct event *event)
{
	struct timeline_off off = {
	    .begin_ns = event->start_ns,
	    .end_ns = event->end_ns,
	    .waking_ns = event->sw.waking_ns,
	    .exec_ns = event->sw.exec_ns,
	    .state = event->sw.state,
	    .flags = event->flags,
	    .syscall_nr = event->sw.syscall_nr,
	};

	/* Preemption shows as state 0 with or without the flag. */
	if (!off.state || (off.flags & EVENT_FLAG_PREEMPTED)) {
		off.state = 0;
		off.waking_ns = off.begin_ns;
		return off;
	}
	if (off.waking_ns < off.begin_ns || off.waking_ns > off.end_ns)
		off.waking_ns = off.end_ns;
	else if (event->sw.waker_context == WAKER_TASK)
		off.waker_tid = event->sw.waker_tid;
	return off;
}

static struct timeline_call call_from(const struct event *event)
{
	return (struct timeline_call){
	    .begin_ns = event->start_ns,
	    .end_ns = event->end_ns,
	    .busy_ns = event->end_ns - event->start_ns,
	    .result = event->call.result,
	    .inode = event->call.inode,
	    .argument = event->call.argument,
	    .kind = call_kind_of(event->call.nr),
	    .fd = event->call.fd,
	    .nr = event->call.nr,
	    .flags = event->flags,
	    .file_type = event->call.file_type,
	    .source = event->call.source,
	};
}

static struct timeline_call group_from(const struct event *event)
{
	struct timeline_call call = {
	    .begin_ns = event->start_ns,
	    .end_ns = event->end_ns,
	    .busy_ns = event->calls.busy_ns,
	    .result = event->calls.bytes,
	    .inode = event->calls.inode,
	    .kind = CALL_GROUP,
	    .fd = -1,
	    .nr = UINT16_MAX,
	    .flags = event->flags,
	    .n_opens = event->calls.n_opens,
	    .n_reads = event->calls.n_reads,
	    .file_type = event->calls.file_type,
	    .source = event->calls.source,
	};

	if (call.busy_ns > call.end_ns - call.begin_ns)
		call.busy_ns = call.end_ns - call.begin_ns;
	return call;
}

static struct timeline_call fault_from(const struct event *event)
{
	return (struct timeline_call){
	    .begin_ns = event->start_ns,
	    .end_ns = event->end_ns,
	    .busy_ns = event->end_ns - event->start_ns,
	    .result = event->fault.added_pages,
	    .inode = event->fault.inode,
	    .argument = event->fault.page,
	    .kind = CALL_FAULT,
	    .fd = -1,
	    .nr = UINT16_MAX,
	    .flags = event->flags,
	    .file_type = EVENT_FILE_REG,
	    .n_sleeps = event->fault.n_sleeps,
	    .n_wakeups = event->fault.n_wakeups,
	};
}

static void thread_add(struct timeline_thread *thread, const struct event *event)
{
	switch ((enum event_type)event->type) {
	case EVENT_SWITCH: thread->offs[thread->n_offs++] = off_from(event); break;
	case EVENT_SYSCALL:
		thread->calls[thread->n_calls++] = call_from(event);
		if (event->call.file_type == EVENT_FILE_SOCK && event->call.source == SOURCE_NETWORK)
			thread->uses_network = true;
		break;
	case EVENT_CALLS: thread->calls[thread->n_calls++] = group_from(event); break;
	case EVENT_FAULT: thread->calls[thread->n_calls++] = fault_from(event); break;
	case EVENT_MARK:
		thread->marks[thread->n_marks++] = (struct timeline_mark){
		    .at_ns = event->end_ns, .value = event->mark.value, .kind = event->mark.kind};
		break;
	case EVENT_STEP: thread->steps[thread->n_steps++] = event->end_ns; break;
	case EVENT_GPU_WAIT:
		thread->gpu_waits[thread->n_gpu_waits++] = (struct timeline_gpu_wait){
		    event->start_ns, event->end_ns, event->gpu.n_launches, event->gpu.function};
		break;
	default: break;
	}
}

/* Compares by begin, then end: every kind of record starts with one of these times. */
#define COMPARE(name, type, first, second)                                                                   \
	static int name(const void *left, const void *right)                                                 \
	{                                                                                                    \
		const struct type *a = left, *b = right;                                                     \
                                                                                                             \
		if (a->first != b->first)                                                                    \
			return a->first < b->first ? -1 : 1;                                                 \
		return a->second < b->second ? -1 : a->second > b->second;                                   \
	}

COMPARE(off_compare, timeline_off, begin_ns, end_ns)
COMPARE(call_compare, timeline_call, begin_ns, end_ns)
COMPARE(gpu_wait_compare, timeline_gpu_wait, begin_ns, end_ns)
COMPARE(mark_compare, timeline_mark, at_ns, kind)

/* Records arrive nearly sorted, so this calls qsort() only if they are not. */
static void sort(void *items, size_t n, size_t size, int (*compare)(const void *, const void *))
{
	for (size_t i = 1; i < n; i++)
		if (compare((char *)items + (i - 1) * size, (char *)items + i * size) > 0) {
			qsort(items, n, size, compare);
			return;
		}
}

/* Cuts records that overlap their predecessor, and drops those that become empty. Returns the number changed.
 */
static size_t thread_disentangle(struct timeline_thread *thread)
{
	size_t n = 0, n_touched = 0;
	uint64_t free_ns = 0;

	for (size_t i = 0; i < thread->n_offs; i++) {
		struct timeline_off off = thread->offs[i];

		if (off.begin_ns < free_ns) {
			off.begin_ns = free_ns;
			n_touched++;
		}
		if (off.begin_ns >= off.end_ns)
			continue;
		if (off.waking_ns < off.begin_ns)
			off.waking_ns = off.begin_ns;
		free_ns = off.end_ns;
		thread->offs[n++] = off;
	}
	thread->n_offs = n;
	n = 0;
	free_ns = 0;
	for (size_t i = 0; i < thread->n_calls; i++) {
		struct timeline_call call = thread->calls[i];

		if (call.begin_ns < free_ns) {
			call.begin_ns = free_ns;
			n_touched++;
		}
		if (call.begin_ns > call.end_ns)
			continue;
		if (call.busy_ns > call.end_ns - call.begin_ns)
			call.busy_ns = call.end_ns - call.begin_ns;
		free_ns = call.end_ns;
		thread->calls[n++] = call;
	}
	thread->n_calls = n;
	return n_touched;
}

/* Finds the processes. A process is its main thread's life or, if that was not seen, its tgid. */
static void timeline_find_processes(struct timeline *timeline)
{
	for (size_t i = 0; i < timeline->n_threads; i++) {
		struct timeline_thread *thread = &timeline->threads[i];
		const struct timeline_thread *leader = timeline_find(
		    timeline, thread->tgid, thread->born_ns ? thread->born_ns : thread->first_ns);

		thread->process =
		    leader ? (uint64_t)(leader - timeline->threads) : UINT64_C(1) << 32 | thread->tgid;
	}
}

static void timeline_finish(struct timeline *timeline)
{
	timeline->begin_ns = UINT64_MAX;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		struct timeline_thread *thread = &timeline->threads[i];

		sort(thread->offs, thread->n_offs, sizeof(*thread->offs), off_compare);
		sort(thread->calls, thread->n_calls, sizeof(*thread->calls), call_compare);
		sort(thread->marks, thread->n_marks, sizeof(*thread->marks), mark_compare);
		sort(thread->steps, thread->n_steps, sizeof(*thread->steps), compare_u64);
		sort(thread->gpu_waits, thread->n_gpu_waits, sizeof(*thread->gpu_waits), gpu_wait_compare);
		timeline->n_malformed += thread_disentangle(thread);
		if (thread->first_ns > thread->last_ns)
			thread->first_ns = thread->last_ns;
		else if (thread->first_ns < timeline->begin_ns)
			timeline->begin_ns = thread->first_ns;
		if (thread->last_ns > timeline->end_ns)
			timeline->end_ns = thread->last_ns;
	}
	if (timeline->begin_ns > timeline->end_ns)
		timeline->begin_ns = timeline->end_ns;
	timeline_find_processes(timeline);
}

/* Returns true for events of the recording itself or the whole job, not of a thread. */
static bool is_interval(const struct event *event)
{
	switch (event->type) {
	case EVENT_GAP:
	case EVENT_LOSS:
	case EVENT_PAGES:
	case EVENT_PLACE:
	case EVENT_READ_SIZES:
	case EVENT_READS: return true;
	}
	return false;
}

static int gaps_collect(struct timeline *timeline, const struct event *events, size_t n_events)
{
	for (size_t i = 0; i < n_events; i++) {
		if (events[i].type != EVENT_GAP)
			continue;
		if (events[i].end_ns < events[i].start_ns || events[i].end_ns >= TIMELINE_TIME_MAX_NS)
			timeline->n_malformed++;
		else if (interval_list_add(&timeline->gaps, events[i].start_ns, events[i].end_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(&timeline->gaps);
	return 0;
}

static void timeline_freep(struct timeline **timeline)
{
	timeline_free(*timeline);
}

int timeline_build(const struct event *events, size_t n_events, struct timeline **ret_timeline,
		   struct error *err)
{
	_cleanup_(timeline_freep) struct timeline *timeline = calloc(1, sizeof(*timeline));

	if (!timeline || threads_make(timeline, events, n_events) < 0)
		return error_set(err, -ENOMEM, "not enough memory to sort %zu events", n_events);
	if (gaps_collect(timeline, events, n_events) < 0)
		return error_set(err, -ENOMEM, "not enough memory to sort %zu events", n_events);
	for (size_t i = 0; i < n_events; i++) {
		if (is_interval(&events[i]))
			continue;
		if (timeline_usable(&events[i]))
			thread_note(thread_of(timeline, &events[i]), &events[i]);
		else
			timeline->n_malformed++;
	}
	if (arrays_make(timeline) < 0)
		return error_set(err, -ENOMEM, "not enough memory to sort %zu events", n_events);
	for (size_t i = 0; i < n_events; i++)
		if (timeline_usable(&events[i]))
			thread_add(thread_of(timeline, &events[i]), &events[i]);
	timeline_finish(timeline);
	if (timeline_fill_gaps(timeline) < 0)
		return error_set(err, -ENOMEM, "not enough memory to sort %zu events", n_events);
	*ret_timeline = steal_pointer(timeline);
	return 0;
}

struct timeline *timeline_free(struct timeline *timeline)
{
	if (!timeline)
		return NULL;
	free(timeline->threads);
	interval_list_free(&timeline->gaps);
	free(timeline->offs);
	free(timeline->calls);
	free(timeline->marks);
	free(timeline->steps);
	free(timeline->gpu_waits);
	free(timeline);
	return NULL;
}
