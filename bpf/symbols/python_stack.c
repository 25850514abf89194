/* SPDX-License-Identifier: Apache-2.0 */
#include "bpf/python_stack.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "processes.h"

#define THREADS_MAX  4096
#define PAGE_BYTES   ((uint64_t)4096)
#define VIEW_BYTES   (3 * PAGE_BYTES)
#define STRUCT_BYTES 256 /* maximum bytes of a thread's or frame's structure, for all reads */

struct python_stack {
	pid_t pid;
	struct processes processes;
	struct python python;
	uint64_t thread; /* the main thread's state; 0: not found yet */
	/* Memory from one read. Since Python 3.11 frames lie one after the other, and a call for each would
	 * cost ten times as much. */
	uint64_t view_begin, view_end;
	uint8_t view[VIEW_BYTES];
};

static int stack_read(const struct python_stack *stack, uint64_t address, void *data, size_t size)
{
	return python_read_process(stack->pid, address, data, size);
}

static bool frames_are_near(const struct python_layout *layout)
{
	return layout->has_holder || layout->owner_skipped != PYTHON_OWNER_NONE;
}

/* Reads a frame, together with the memory below it, where its callers' frames are. */
static int frame_read(struct python_stack *stack, uint64_t at, uint8_t *data, size_t size)
{
	uint64_t page = at & ~(PAGE_BYTES - 1), begin = page - PAGE_BYTES, end;

	/* The process is running and may write any value, so the address may be invalid. */
	if (__builtin_add_overflow(at, size, &end))
		return -EFAULT;
	if (at >= stack->view_begin && end <= stack->view_end) {
		memcpy(data, stack->view + (at - stack->view_begin), size);
		return 0;
	}
	if (frames_are_near(&stack->python.layout) && end - begin <= VIEW_BYTES && begin < at &&
	    !stack_read(stack, begin, stack->view, end - begin)) {
		stack->view_begin = begin;
		stack->view_end = end;
		memcpy(data, stack->view + (at - begin), size);
		return 0;
	}
	return stack_read(stack, at, data, size);
}

static bool fits(const struct python_layout *layout)
{
	const uint32_t most = STRUCT_BYTES - 8;

	return layout->thread_next <= most && layout->thread_frame <= most &&
	       layout->frame_previous <= most && layout->frame_code <= most && layout->frame_owner <= most;
}

int python_stack_open(const char *root, pid_t pid, struct python_stack **ret_stack)
{
	struct python_stack *stack = calloc(1, sizeof(*stack));
	struct process *process;
	uint64_t probe;
	int r;

	if (!stack)
		return -ENOMEM;
	stack->pid = pid;
	r = processes_init(&stack->processes, root);
	if (r < 0) {
		free(stack);
		return r;
	}
	process = processes_get(&stack->processes, (uint32_t)pid);
	r = process ? -ENOENT : -ENOMEM;
	if (process && process_python(&stack->processes, process, clock_monotonic_ns())) {
		stack->python = process->python;
		r = fits(&stack->python.layout)
			? stack_read(stack, stack->python.layout.runtime, &probe, sizeof(probe))
			: -ENOENT;
	}
	/* The version and the offsets are known now, so the mappings are no longer needed. */
	if (process)
		address_space_free(&process->space);
	code_files_free(&stack->processes.files);
	if (r < 0) {
		python_stack_close(stack);
		return r;
	}
	*ret_stack = stack;
	return 0;
}

void python_stack_close(struct python_stack *stack)
{
	if (!stack)
		return;
	processes_free(&stack->processes);
	free(stack);
}

static uint64_t u64_at(const uint8_t *data, uint32_t offset)
{
	uint64_t value;

	memcpy(&value, data + offset, sizeof(value));
	return value;
}

/* Finds the main thread. The interpreter adds new threads at the front of its list, so the main thread is
 * last. */
static int thread_find(struct python_stack *stack)
{
	const struct python_layout *layout = &stack->python.layout;
	uint64_t at, next;
	int r = stack_read(stack, layout->runtime + layout->interpreters_head, &at, sizeof(at));

	if (r == 0)
		r = stack_read(stack, at + layout->threads_head, &next, sizeof(next));
	for (size_t i = 0; r == 0 && next; i++) {
		if (i == THREADS_MAX)
			return -ELOOP;
		at = next;
		r = stack_read(stack, at + layout->thread_next, &next, sizeof(next));
		if (r == 0 && !next)
			stack->thread = at;
	}
	return r < 0 ? r : stack->thread ? 0 : -EFAULT;
}

/* Finds the innermost frame, or its holder. */
static int frame_find(struct python_stack *stack, uint64_t *ret_frame)
{
	const struct python_layout *layout = &stack->python.layout;
	uint32_t last =
	    layout->thread_next > layout->thread_frame ? layout->thread_next : layout->thread_frame;
	uint8_t data[STRUCT_BYTES];
	int r = stack->thread ? stack_read(stack, stack->thread, data, last + 8) : -EFAULT;

	/* If it is no longer the last thread, this is another program or interpreter. */
	if (r < 0 || u64_at(data, layout->thread_next)) {
		stack->thread = 0;
		r = thread_find(stack);
		if (r == 0)
			r = stack_read(stack, stack->thread, data, last + 8);
	}
	if (r == 0)
		*ret_frame = u64_at(data, layout->thread_frame);
	if (r == 0 && layout->has_holder && *ret_frame)
		r = stack_read(stack, *ret_frame + layout->holder_frame, ret_frame, sizeof(*ret_frame));
	return r;
}

ssize_t python_stack_walk(struct python_stack *stack, uint64_t codes[PYTHON_STACK_FRAMES_MAX])
{
	const struct python_layout *layout = &stack->python.layout;
	bool owned = layout->owner_skipped != PYTHON_OWNER_NONE;
	uint32_t last =
	    layout->frame_previous > layout->frame_code ? layout->frame_previous : layout->frame_code;
	uint8_t data[STRUCT_BYTES];
	uint64_t at = 0;
	size_t n = 0;
	int r = frame_find(stack, &at);

	stack->view_begin = stack->view_end = 0;
	if (owned && layout->frame_owner > last)
		last = layout->frame_owner;
	for (size_t i = 0; r == 0 && at && i < PYTHON_STACK_FRAMES_MAX; i++) {
		r = frame_read(stack, at, data, last + 8);
		if (r < 0)
			break;
		if (!owned || data[layout->frame_owner] < layout->owner_skipped)
			codes[n++] = u64_at(data, layout->frame_code) & ~(uint64_t)PYTHON_CODE_TAG;
		at = u64_at(data, layout->frame_previous);
	}
	return r < 0 ? r : (ssize_t)n;
}

int python_stack_name(struct python_stack *stack, uint64_t code, char *path, size_t path_size, char *function,
		      size_t function_size, bool *ret_generator)
{
	pid_t pid = stack->pid;
	const struct python_memory memory = python_memory_of(&pid);
	struct python_code texts;
	int r = python_code_read(&stack->python, &memory, code, &texts);

	if (r < 0)
		return r;
	snprintf(path, path_size, "%s", texts.path);
	snprintf(function, function_size, "%s", texts.function);
	*ret_generator = texts.generator;
	return 0;
}
