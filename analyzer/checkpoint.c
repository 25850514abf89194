/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint.h"

#include <errno.h>

#include "calls.h"

#define FILES_MAX     16 /* open for writing at the same time and followed; more are forgotten */
#define FOLLOW_CPU_NS UINT64_C(1500000) /* fsync, rename and so on come this soon after the close */

struct open_file {
	bool used;
	int32_t fd;
	uint64_t begin_ns;
	uint64_t written_bytes;
};

struct finder {
	const struct timeline_thread *thread;
	const uint64_t *steps;
	size_t n_steps;
	struct interval_list *found;
	uint64_t last_end_ns; /* of the last checkpoint; 0: none */
	struct open_file files[FILES_MAX];
};

static bool step_within(const struct finder *finder, uint64_t begin_ns, uint64_t end_ns)
{
	size_t low = 0, high = finder->n_steps;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (finder->steps[middle] < begin_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low < finder->n_steps && finder->steps[low] < end_ns;
}

static struct open_file *file_of(struct finder *finder, int32_t fd)
{
	for (size_t i = 0; i < FILES_MAX; i++)
		if (finder->files[i].used && finder->files[i].fd == fd)
			return &finder->files[i];
	return NULL;
}

static void file_open(struct finder *finder, const struct timeline_call *call)
{
	struct open_file *file = file_of(finder, (int32_t)call->result);

	for (size_t i = 0; !file && i < FILES_MAX; i++)
		if (!finder->files[i].used)
			file = &finder->files[i];
	if (file)
		*file =
		    (struct open_file){.used = true, .fd = (int32_t)call->result, .begin_ns = call->begin_ns};
}

static int checkpoint_add(struct finder *finder, uint64_t begin_ns, uint64_t end_ns)
{
	if (end_ns > finder->last_end_ns)
		finder->last_end_ns = end_ns;
	return interval_list_add(finder->found, begin_ns, end_ns);
}

/* A call that ends or secures a checkpoint; right behind one it closes the gap to it. */
static int follow_add(struct finder *finder, const struct timeline_call *call, bool alone)
{
	uint64_t begin_ns = call->begin_ns;

	if (finder->last_end_ns && finder->last_end_ns <= begin_ns &&
	    timeline_account(finder->thread, finder->last_end_ns, begin_ns).cpu_ns < FOLLOW_CPU_NS &&
	    !step_within(finder, finder->last_end_ns, call->end_ns))
		begin_ns = finder->last_end_ns;
	else if (!alone)
		return 0;
	return checkpoint_add(finder, begin_ns, call->end_ns);
}

static int file_close(struct finder *finder, const struct timeline_call *call)
{
	struct open_file *file = file_of(finder, call->fd);
	struct open_file closed;

	if (!file)
		return 0;
	closed = *file;
	file->used = false;
	if (closed.written_bytes <= CHECKPOINT_MIN_BYTES ||
	    step_within(finder, closed.begin_ns, call->end_ns))
		return 0;
	return checkpoint_add(finder, closed.begin_ns, call->end_ns);
}

static int call_look(struct finder *finder, const struct timeline_call *call)
{
	if (call_is_open_write(call)) {
		file_open(finder, call);
	} else if (call_is_file_write(call)) {
		struct open_file *file = file_of(finder, call->fd);
		uint64_t bytes = call->result > 0 ? (uint64_t)call->result : 0;

		if (file)
			file->written_bytes += bytes;
		if (bytes > CHECKPOINT_MIN_BYTES)
			return checkpoint_add(finder, call->begin_ns, call->end_ns);
	} else if (call_is_sync(call)) {
		return follow_add(finder, call, true);
	} else if (call_is_rename(call)) {
		return follow_add(finder, call, false);
	} else if (call_is_close(call)) {
		return file_close(finder, call);
	}
	return 0;
}

int checkpoints_find(const struct timeline_thread *thread, const uint64_t *steps, size_t n_steps,
		     struct interval_list *checkpoints)
{
	struct finder finder = {.thread = thread, .steps = steps, .n_steps = n_steps, .found = checkpoints};

	for (size_t i = 0; i < thread->n_calls; i++) {
		int r = call_look(&finder, &thread->calls[i]);

		if (r < 0)
			return r;
	}
	return 0;
}
