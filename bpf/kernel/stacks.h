/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Stack samples of the job's threads. The program runs at each tick of a CPU's software clock and samples the
 * thread that has the CPU. A thread that is not part of the job costs one look-up.
 */

#include "recorder.h"
#include "bpf/shared/stack_sample.h"

/* A separate ring, which the collector sizes before load, so that samples cannot push out the records from
 * which shares are computed. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} stack_ring SEC(".maps");

/* Processes whose Python frames can be walked, by tgid; filled by the collector. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, uint32_t);
	__type(value, struct python_layout);
} pythons SEC(".maps");

/* The context of a perf_event program begins with the registers. The program reads them by index, because
 * the name pt_regs is the kernel's own struct here (core_types.h). */
#define CONTEXT_CS 17

struct sample_context {
	uint64_t registers[21];
};

static __always_inline uint64_t user_pointer(uint64_t address)
{
	uint64_t value = 0;

	if (bpf_probe_read_user(&value, sizeof(value), (void *)address))
		return 0;
	return value;
}

/* Returns the interpreter's state of this thread, whose thread_id is the thread pointer; 0: none. */
static __always_inline uint64_t python_thread(struct task_struct *task, const struct python_layout *layout)
{
	uint64_t self = task->thread.fsbase;
	uint64_t at = user_pointer(layout->runtime + layout->interpreters_head);

	if (!at || !self)
		return 0;
	at = user_pointer(at + layout->threads_head);
	for (int i = 0; at && i < STACK_THREADS; i++) {
		if (user_pointer(at + layout->thread_id) == self)
			return at;
		at = user_pointer(at + layout->thread_next);
	}
	return 0;
}

static __always_inline void sample_python(struct task_struct *task, struct stack_sample *sample)
{
	uint32_t tgid = task->tgid;
	const struct python_layout *layout = bpf_map_lookup_elem(&pythons, &tgid);
	uint64_t at;

	/* A worker that was just forked has its parent's program at the same addresses. */
	if (!layout) {
		tgid = BPF_CORE_READ(task, real_parent, tgid);
		layout = bpf_map_lookup_elem(&pythons, &tgid);
	}
	if (!layout || !layout->runtime)
		return;
	at = python_thread(task, layout);
	if (!at)
		return;
	at = user_pointer(at + layout->thread_frame);
	if (at && layout->has_holder)
		at = user_pointer(at + layout->holder_frame);
	for (uint32_t i = 0; at && i < STACK_PYTHON_MAX; i++) {
		uint64_t code = user_pointer(at + layout->frame_code) & ~(uint64_t)PYTHON_CODE_TAG;
		uint8_t owner = PYTHON_OWNER_NONE;

		if (layout->owner_skipped != PYTHON_OWNER_NONE)
			bpf_probe_read_user(&owner, sizeof(owner), (void *)(at + layout->frame_owner));
		/* Frames without code are stored as 0, because one index for both keeps the verifier's work
		 * small. */
		sample->python[i] = owner != PYTHON_OWNER_NONE && owner >= layout->owner_skipped ? 0 : code;
		sample->n_python = i + 1;
		at = user_pointer(at + layout->frame_previous);
	}
}

SEC("?perf_event")
int sample_cpu(struct sample_context *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t now_ns;
	struct stack_sample *sample;
	long bytes;

	if (!member_of(task))
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (now_ns >= detail_until_ns)
		return 0;
	sample = bpf_ringbuf_reserve(&stack_ring, sizeof(*sample), 0);
	if (!sample) {
		count_lost(EVENT_STACK);
		return 0;
	}
	sample->at_ns = now_ns;
	sample->tid = task->pid;
	sample->tgid = task->tgid;
	sample->cpu = bpf_get_smp_processor_id();
	sample->flags = ctx->registers[CONTEXT_CS] & 3 ? 0 : STACK_IN_KERNEL;
	sample->syscall_nr = sample->flags ? current_call(task) : NO_CALL;
	sample->n_python = 0;
	sample->reserved = 0;
	bytes = bpf_get_stack(ctx, sample->native, sizeof(sample->native), BPF_F_USER_STACK);
	sample->n_native = bytes > 0 ? bytes / sizeof(sample->native[0]) : 0;
	sample_python(task, sample);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return 0;
}
