/* SPDX-License-Identifier: Apache-2.0 */
#include "roles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/timeline/calls.h"
#include "handovers.h"
#include "lib/sorted.h"

/* Minimum number of steps in which a loader thread reads, and of a thread's sleeps that loaders end. */
#define STEPS_MIN 2

static bool reads_data(const struct timeline_thread *thread, size_t call)
{
	return call_read_bytes(&thread->calls[call]) > 0;
}

/* Returns true if the thread writes more than it reads. Such a thread is not a loader: it saves data, and
 * checks existing files. */
static bool writes_more(const struct timeline_thread *thread)
{
	uint64_t read_bytes = 0, written_bytes = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];

		if (call_is_file_write(call) && call->result > 0)
			written_bytes += (uint64_t)call->result;
		else
			read_bytes += call_read_bytes(call);
	}
	return written_bytes > read_bytes;
}

/* Returns the number of steps in which the thread reads files. Time before the first step is start-up. */
static size_t n_reading_steps(const struct timeline_thread *thread, const struct timeline_thread *trainer)
{
	size_t n = 0, call = 0, off = 0;

	for (size_t step = 1; step < trainer->n_steps; step++) {
		uint64_t begin_ns = trainer->steps[step - 1], end_ns = trainer->steps[step];
		bool reads = false;

		for (; call < thread->n_calls && thread->calls[call].begin_ns < end_ns; call++)
			reads |= thread->calls[call].begin_ns >= begin_ns && reads_data(thread, call);
		for (; off < thread->n_offs && thread->offs[off].begin_ns < end_ns; off++)
			reads |= thread->offs[off].begin_ns >= begin_ns &&
				 (thread->offs[off].flags & EVENT_FLAG_MAJOR_FAULT);
		n += reads;
	}
	return n;
}

static bool is_loader(const struct timeline *timeline, const struct roles *roles, uint32_t tid,
		      uint64_t at_ns)
{
	return role_of(timeline, roles, timeline_find(timeline, tid, at_ns)) == ROLE_LOADER;
}

/* Returns the number of the thread's sleeps that tasks ended, other than waits for the interpreter lock,
 * and how many of these loader threads ended. */
static size_t n_sleeps(const struct timeline *timeline, const struct roles *roles,
		       const struct timeline_thread *thread, size_t *ret_n_by_loaders)
{
	size_t n = 0, n_by_loaders = 0;

	for (size_t i = 0; i < thread->n_offs; i++) {
		const struct timeline_off *off = &thread->offs[i];

		if (!off->waker_tid || gil_waits(&roles->gil, thread, off))
			continue;
		n++;
		n_by_loaders += is_loader(timeline, roles, off->waker_tid, off->waking_ns);
	}
	*ret_n_by_loaders = n_by_loaders;
	return n;
}

/* Adds the threads that are mostly woken by loader threads: they are the next stage of the same pipeline.
 * Returns true if there are any. */
static bool stage_add(const struct timeline *timeline, struct roles *roles)
{
	bool found = false;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		size_t n, n_by_loaders;

		if (roles->of[i] != ROLE_HELPER)
			continue;
		n = n_sleeps(timeline, roles, &timeline->threads[i], &n_by_loaders);
		if (n_by_loaders >= STEPS_MIN && 2 * n_by_loaders > n) {
			roles->of[i] = ROLE_LOADER;
			found = true;
		}
	}
	return found;
}

/* Returns the number of the trainer's sleeps that loader threads ended; only those within next(), if
 * next() makes the batch itself. */
static size_t n_ended_by_loaders(const struct timeline *timeline, const struct roles *roles)
{
	const struct timeline_thread *trainer = roles->trainer;
	bool anywhere = !roles->n_own_batches, within = false;
	size_t n = 0, mark = 0;

	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		for (; mark < trainer->n_marks && trainer->marks[mark].at_ns <= off->begin_ns; mark++) {
			within |= trainer->marks[mark].kind == MARK_BATCH_BEGIN;
			within &= trainer->marks[mark].kind != MARK_BATCH_END;
		}
		n += (anywhere || within) && off->waker_tid && !gil_waits(&roles->gil, trainer, off) &&
		     is_loader(timeline, roles, off->waker_tid, off->waking_ns);
	}
	return 2 * n < roles->n_own_batches ? 0 : n;
}

static bool loads(const struct timeline *timeline, const struct roles *roles,
		  const struct timeline_thread *thread)
{
	if (!roles->trainer->n_steps && !roles->step_mark)
		return handovers_go_on(timeline, roles, thread);
	return n_reading_steps(thread, roles->trainer) >= STEPS_MIN;
}

/* Finds the loader threads of the trainer's process. -ENOMEM. */
static int roles_find_loaders(const struct timeline *timeline, struct roles *roles)
{
	size_t n_ended, n = 0, n_own;

	for (size_t i = 0; i < timeline->n_threads; i++)
		if (roles->of[i] == ROLE_HELPER && !writes_more(&timeline->threads[i]) &&
		    loads(timeline, roles, &timeline->threads[i])) {
			roles->of[i] = ROLE_LOADER;
			n++;
		}
	if (!n)
		return 0;
	while (stage_add(timeline, roles))
		;
	roles->loaders = calloc(timeline->n_threads + 1, sizeof(*roles->loaders));
	if (!roles->loaders)
		return -ENOMEM;
	n_ended = n_ended_by_loaders(timeline, roles);
	n_own = n_reading_steps(roles->trainer, roles->trainer);
	for (size_t i = 0; i < timeline->n_threads; i++) {
		if (roles->of[i] != ROLE_LOADER)
			continue;
		/* If the trainer reads its own data, these threads read for another purpose: a monitor or
		 * an index. */
		if (!n_ended || 4 * n_ended < n_own)
			roles->of[i] = ROLE_HELPER;
		else
			roles->loaders[roles->n_loaders++] = &timeline->threads[i];
	}
	return 0;
}

/* A message that the trainer's process read, or (result NONE) a step. */
struct role_feed {
	uint64_t at_ns;
	size_t result; /* index in roles->results */
};

#define NONE SIZE_MAX

/* A result pipe, with the first and the last step before which its message was the last one to arrive. */
struct fed {
	size_t result, first, last;
};

static int feed_compare(const void *left, const void *right)
{
	const struct role_feed *a = left, *b = right;

	return a->at_ns < b->at_ns ? -1 : a->at_ns > b->at_ns;
}

/* Adds messages and steps by time; without an array it only counts them. */
static size_t feeds_collect(const struct timeline *timeline, const struct roles *roles,
			    struct role_feed *feeds)
{
	size_t n = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];

		if (!timeline_same_process(thread, roles->trainer))
			continue;
		for (size_t k = 0; k < thread->n_calls; k++) {
			const struct timeline_call *call = &thread->calls[k];
			size_t result;

			if (!call_is_pipe_read(call) || call->result <= 0)
				continue;
			result = roles_result(roles, call->inode);
			if (result == roles->n_results)
				continue;
			if (feeds)
				feeds[n] = (struct role_feed){call->end_ns, result};
			n++;
		}
	}
	for (size_t k = 0; k < roles->trainer->n_steps; k++, n++)
		if (feeds)
			feeds[n] = (struct role_feed){roles->trainer->steps[k], NONE};
	return n;
}

static int fed_compare(const void *left, const void *right)
{
	const struct fed *a = left, *b = right;

	return a->first < b->first ? -1 : a->first > b->first;
}

/* Pipes whose steps alternate are one loader's, which has a pipe for each worker. If each epoch has a
 * loader of its own, its steps all follow those of the previous loader. */
static void loaders_number(struct fed *fed, size_t n, struct roles *roles)
{
	uint32_t n_loaders = 0;
	size_t last = 0;

	qsort(fed, n, sizeof(*fed), fed_compare);
	for (size_t i = 0; i < n && fed[i].first != NONE; i++) {
		if (!i || fed[i].first > last)
			n_loaders++;
		if (!i || fed[i].last > last)
			last = fed[i].last;
		roles->result_loaders[fed[i].result] = n_loaders;
	}
	/* Without any step that is a backward pass, the loaders cannot be distinguished, and count as one. */
	for (size_t i = 0; i < n && !n_loaders; i++)
		roles->result_loaders[i] = 1;
}

static void feeds_count(struct role_feed *feeds, size_t n, struct fed *fed, size_t n_results)
{
	size_t result = NONE, step = 0;

	for (size_t i = 0; i < n_results; i++)
		fed[i] = (struct fed){.result = i, .first = NONE};
	qsort(feeds, n, sizeof(*feeds), feed_compare);
	for (size_t i = 0; i < n; i++) {
		if (feeds[i].result != NONE) {
			result = feeds[i].result;
			continue;
		}
		if (result != NONE && fed[result].first == NONE)
			fed[result].first = step;
		if (result != NONE)
			fed[result].last = step;
		step++;
	}
}

static void workers_number(const struct timeline *timeline, struct roles *roles)
{
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t result = roles->n_results;

		if (roles->of[i] != ROLE_WORKER && roles->of[i] != ROLE_HANDOFF)
			continue;
		for (size_t k = 0; k < thread->n_calls && result == roles->n_results; k++)
			if (call_is_pipe_write(&thread->calls[k]))
				result = roles_result(roles, thread->calls[k].inode);
		for (size_t w = 0; result < roles->n_results && w < roles->n_workers; w++)
			if (timeline_same_process(roles->workers[w], thread))
				roles->worker_loaders[w] = roles->result_loaders[result];
	}
}

/* Finds the loader that feeds each step. -ENOMEM. */
static int roles_find_feeds(const struct timeline *timeline, struct roles *roles)
{
	size_t n = feeds_collect(timeline, roles, NULL);
	struct role_feed *feeds = calloc(n + 1, sizeof(*feeds));
	struct fed *fed = calloc(roles->n_results + 1, sizeof(*fed));

	roles->result_loaders = calloc(roles->n_results + 1, sizeof(*roles->result_loaders));
	roles->worker_loaders = calloc(roles->n_workers + 1, sizeof(*roles->worker_loaders));
	if (feeds && fed && roles->result_loaders && roles->worker_loaders) {
		feeds_collect(timeline, roles, feeds);
		feeds_count(feeds, n, fed, roles->n_results);
		loaders_number(fed, roles->n_results, roles);
		workers_number(timeline, roles);
	}
	free(feeds);
	free(fed);
	return feeds && fed && roles->result_loaders && roles->worker_loaders ? 0 : -ENOMEM;
}

/* A batch is two reads: its length and its message. A child that answers once or tells its exit status causes
 * one or two reads as well. */
#define RESULT_READS_MIN 3

/* A pipe that the trainer's process uses. */
struct pipe_use {
	uint64_t inode;
	bool written;     /* the trainer's process writes to it */
	bool result;      /* a worker process writes it */
	bool ended;       /* the trainer's process read to its end: a child's output, not a result pipe */
	uint32_t n_reads; /* reads by the trainer's process */
};

struct pipe_table {
	struct pipe_use *items; /* sorted by inode */
	size_t n;
};

static size_t n_marks_of(const struct timeline_thread *thread, uint32_t kind)
{
	size_t n = 0;

	for (size_t i = 0; i < thread->n_marks; i++)
		n += thread->marks[i].kind == kind;
	return n;
}

/* Returns the kind of mark that ends the thread's steps; 0: none. */
static uint32_t step_mark_of(const struct timeline_thread *thread)
{
	if (thread->n_steps)
		return 0;
	if (n_marks_of(thread, MARK_NEXT_END))
		return MARK_NEXT_END;
	return n_marks_of(thread, MARK_BATCH_END) ? MARK_BATCH_END : 0;
}

/* Returns the thread for which this one loads: its process's main thread, if this thread ends that one's
 * sleeps about as often as next() returns; else the thread itself. */
static const struct timeline_thread *fed_by(const struct timeline *timeline,
					    const struct timeline_thread *marked, size_t n_marks)
{
	const struct timeline_thread *leader = timeline_find(timeline, marked->tgid, marked->last_ns);
	size_t n = 0;

	if (!leader || leader == marked)
		return marked;
	for (size_t i = 0; i < leader->n_offs; i++)
		n += leader->offs[i].waker_tid == marked->tid;
	return 2 * n >= n_marks ? leader : marked;
}

static void trainer_find(const struct timeline *timeline, uint32_t root_tgid, uint32_t trainer_tid,
			 struct roles *roles)
{
	const struct timeline_thread *root = NULL, *marked = NULL, *forced = NULL, *waits = NULL;
	size_t n_marks_best = 0;

	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t n_marks = n_marks_of(thread, MARK_NEXT_END) + n_marks_of(thread, MARK_BATCH_END);

		if (thread->n_steps) {
			roles->n_trainers++;
			if (!roles->trainer || thread->n_steps > roles->trainer->n_steps)
				roles->trainer = thread;
		}
		if (n_marks > n_marks_best) {
			marked = thread;
			n_marks_best = n_marks;
		}
		if (thread->tid == thread->tgid && thread->n_gpu_waits > (waits ? waits->n_gpu_waits : 0))
			waits = thread;
		if (thread->tid == root_tgid && !root)
			root = thread;
		/* If the tid was reused, takes the life with steps, or else the last one. */
		if (trainer_tid && thread->tid == trainer_tid && (!forced || !forced->n_steps))
			forced = thread;
	}
	if (!roles->trainer)
		roles->trainer = marked                      ? fed_by(timeline, marked, n_marks_best)
				 : root && root->n_gpu_waits ? root
				 : waits                     ? waits
							     : root;
	if (forced)
		roles->trainer = forced;
	if (roles->trainer)
		roles->step_mark = step_mark_of(roles->trainer);
}

static int pipe_compare(const void *left, const void *right)
{
	const struct pipe_use *a = left, *b = right;

	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

static struct pipe_use *pipe_find(const struct pipe_table *table, uint64_t inode)
{
	struct pipe_use key = {.inode = inode};

	return table->n ? bsearch(&key, table->items, table->n, sizeof(key), pipe_compare) : NULL;
}

/* Adds the thread's pipes; without a table it only counts them. */
static size_t pipes_of_thread(const struct timeline_thread *thread, struct pipe_use *items)
{
	uint64_t last_inode = 0;
	bool last_read = false;
	size_t n = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		bool reads = call_is_pipe_read(call);

		if (!reads && !call_is_pipe_write(call))
			continue;
		if (n && call->inode == last_inode && reads == last_read) {
			if (items && reads) {
				items[n - 1].ended |= !call->result;
				items[n - 1].n_reads += call->result > 0;
			}
			continue;
		}
		if (items)
			items[n] = (struct pipe_use){.inode = call->inode,
						     .written = !reads,
						     .ended = reads && !call->result,
						     .n_reads = reads && call->result > 0};
		last_inode = call->inode;
		last_read = reads;
		n++;
	}
	return n;
}

static int pipes_collect(const struct timeline *timeline, const struct timeline_thread *trainer,
			 struct pipe_table *ret_table)
{
	struct pipe_table table = {0};
	size_t n = 0, n_unique = 0;

	for (size_t i = 0; i < timeline->n_threads; i++)
		if (timeline_same_process(&timeline->threads[i], trainer))
			n += pipes_of_thread(&timeline->threads[i], NULL);
	table.items = calloc(n + 1, sizeof(*table.items));
	if (!table.items)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < timeline->n_threads; i++)
		if (timeline_same_process(&timeline->threads[i], trainer))
			n += pipes_of_thread(&timeline->threads[i], table.items + n);
	qsort(table.items, n, sizeof(*table.items), pipe_compare);
	for (size_t i = 0; i < n; i++) {
		if (!n_unique || table.items[n_unique - 1].inode != table.items[i].inode)
			table.items[n_unique++] = table.items[i];
		table.items[n_unique - 1].written |= table.items[i].written;
		table.items[n_unique - 1].ended |= table.items[i].ended;
		if (&table.items[n_unique - 1] != &table.items[i])
			table.items[n_unique - 1].n_reads += table.items[i].n_reads;
	}
	table.n = n_unique;
	*ret_table = table;
	return 0;
}

static bool looks_for_index(const struct timeline_call *call, const struct pipe_table *table)
{
	const struct pipe_use *use;

	if (!call_is_pipe_read(call) && !call_is_pipe_poll(call))
		return false;
	use = pipe_find(table, call->inode);
	return use && use->written;
}

/* Returns the time when the thread first looks for an index; 0: never. A spawned process first gets what
 * it needs to start through another pipe, so the last pipe is meant. */
static uint64_t reads_index(const struct timeline_thread *thread, const struct pipe_table *table)
{
	uint64_t inode = 0, first_ns = 0;

	for (size_t i = thread->n_calls; i > 0; i--) {
		const struct timeline_call *call = &thread->calls[i - 1];

		if ((inode && call->inode != inode) || !looks_for_index(call, table))
			continue;
		inode = call->inode;
		first_ns = call->begin_ns;
	}
	return first_ns;
}

/* Marks the result pipes that the thread writes. false: it writes none. */
static bool writes_result(const struct timeline_thread *thread, struct pipe_table *table)
{
	bool any = false;

	for (size_t i = 0; i < thread->n_calls; i++) {
		struct pipe_use *use;

		if (!call_is_pipe_write(&thread->calls[i]))
			continue;
		use = pipe_find(table, thread->calls[i].inode);
		if (!use || use->ended || use->n_reads < RESULT_READS_MIN)
			continue;
		use->result = true;
		any = true;
	}
	return any;
}

/* Returns the number of calls of next() that make the batch themselves; 0 if these are not the majority. */
static size_t own_batches_of(const struct timeline_thread *trainer)
{
	size_t n_inline = 0, n_workers = 0;

	for (size_t i = 0; i < trainer->n_marks; i++) {
		n_inline += trainer->marks[i].kind == MARK_BATCH_BEGIN &&
			    trainer->marks[i].value == MARK_BATCH_INLINE;
		n_workers += trainer->marks[i].kind == MARK_BATCH_BEGIN &&
			     trainer->marks[i].value == MARK_BATCH_WORKERS;
	}
	return n_inline > n_workers && 2 * n_inline >= trainer->n_steps ? n_inline : 0;
}

/* Only in a main thread does the tid equal the tgid, at least after a fork that no exec follows. */
static int workers_find(const struct timeline *timeline, struct pipe_table *table, struct roles *roles)
{
	roles->workers = calloc(timeline->n_threads + 1, sizeof(*roles->workers));
	roles->started_ns = calloc(timeline->n_threads + 1, sizeof(*roles->started_ns));
	if (!roles->workers || !roles->started_ns)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		bool hands_over = false;

		if (timeline_same_process(thread, roles->trainer) || thread->tid != thread->tgid ||
		    !reads_index(thread, table))
			continue;
		for (size_t k = 0; k < timeline->n_threads; k++)
			if (timeline_same_process(&timeline->threads[k], thread))
				hands_over |= writes_result(&timeline->threads[k], table);
		if (!hands_over)
			continue;
		for (size_t k = 0; k < timeline->n_threads; k++)
			if (timeline_same_process(&timeline->threads[k], thread))
				roles->of[k] = ROLE_HANDOFF;
		roles->of[i] = ROLE_WORKER;
		roles->started_ns[roles->n_workers] = reads_index(thread, table);
		roles->workers[roles->n_workers++] = thread;
	}
	return 0;
}

static int results_collect(const struct timeline *timeline, const struct pipe_table *table,
			   struct roles *roles)
{
	size_t n_reads_best = 0;

	roles->results = calloc(table->n + 1, sizeof(*roles->results));
	if (!roles->results)
		return -ENOMEM;
	for (size_t i = 0; i < table->n; i++)
		if (table->items[i].result)
			roles->results[roles->n_results++] = table->items[i].inode;
	for (size_t i = 0; i < timeline->n_threads; i++) {
		const struct timeline_thread *thread = &timeline->threads[i];
		size_t n_reads = 0;

		if (!timeline_same_process(thread, roles->trainer))
			continue;
		for (size_t k = 0; k < thread->n_calls; k++)
			n_reads += call_is_pipe_read(&thread->calls[k]) &&
				   roles_is_result(roles, thread->calls[k].inode);
		if (n_reads > n_reads_best) {
			roles->reader = thread;
			n_reads_best = n_reads;
		}
	}
	return 0;
}

static int loader_roles_find(const struct timeline *timeline, struct roles *roles)
{
	struct pipe_table table;
	int r;

	r = pipes_collect(timeline, roles->trainer, &table);
	if (r < 0)
		return r;
	if (!roles->n_own_batches)
		r = workers_find(timeline, &table, roles);
	if (r == 0)
		r = results_collect(timeline, &table, roles);
	if (r == 0)
		r = roles_find_feeds(timeline, roles);
	free(table.items);
	if (r == 0)
		r = gil_find(timeline, &roles->gil);
	return r < 0 || roles->n_workers ? r : roles_find_loaders(timeline, roles);
}

int roles_find(const struct timeline *timeline, uint32_t root_tgid, uint32_t trainer_tid,
	       struct roles *ret_roles)
{
	struct roles roles = {.of = calloc(timeline->n_threads + 1, sizeof(*roles.of))};

	if (!roles.of)
		return -ENOMEM;
	trainer_find(timeline, root_tgid, trainer_tid, &roles);
	if (roles.trainer) {
		for (size_t i = 0; i < timeline->n_threads; i++)
			if (timeline_same_process(&timeline->threads[i], roles.trainer))
				roles.of[i] = ROLE_HELPER;
		roles.of[roles.trainer - timeline->threads] = ROLE_TRAINER;
		roles.n_own_batches = own_batches_of(roles.trainer);
		if (loader_roles_find(timeline, &roles) < 0) {
			roles_free(&roles);
			return -ENOMEM;
		}
	}
	*ret_roles = roles;
	return 0;
}

void roles_free(struct roles *roles)
{
	free(roles->results);
	free(roles->result_loaders);
	free(roles->workers);
	free(roles->worker_loaders);
	free(roles->started_ns);
	free(roles->loaders);
	gil_free(&roles->gil);
	free(roles->of);
	*roles = (struct roles){0};
}

size_t roles_result(const struct roles *roles, uint64_t inode)
{
	size_t at = sorted_count(roles->n_results, i, roles->results[i] < inode);

	return at < roles->n_results && roles->results[at] == inode ? at : roles->n_results;
}

bool roles_is_result(const struct roles *roles, uint64_t inode)
{
	return roles_result(roles, inode) < roles->n_results;
}

uint64_t roles_started_ns(const struct roles *roles, const struct timeline_thread *thread)
{
	for (size_t i = 0; i < roles->n_workers; i++)
		if (timeline_same_process(roles->workers[i], thread))
			return roles->started_ns[i];
	return 0;
}

enum role role_of(const struct timeline *timeline, const struct roles *roles,
		  const struct timeline_thread *thread)
{
	return thread ? (enum role)roles->of[thread - timeline->threads] : ROLE_OTHER;
}

const char *role_name(enum role role)
{
	switch (role) {
	case ROLE_OTHER: return "another process";
	case ROLE_TRAINER: return "trainer";
	case ROLE_HELPER: return "trainer's thread";
	case ROLE_WORKER: return "worker";
	case ROLE_HANDOFF: return "worker's hand-off";
	case ROLE_LOADER: return "loader thread";
	}
	return "";
}
