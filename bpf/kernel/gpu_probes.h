/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Probes in libcuda.so.1. Launches are very frequent, so they are only counted. The one that is recorded is
 * the first after the queue was known to be empty, because it ends a time in which the GPU had nothing to do.
 *
 * "Known to be empty" is strict, because a lower bound is made of it: the synchronisation covered every
 * stream that this process had queued work on, and no thread queued any work while it ran.
 */

#include "bpf/shared/gpu_shared.h"
#include "recorder.h"

#define GPU_PROCESSES 1024
#define FORKED_ONLY   0x40 /* PF_FORKNOEXEC: the process has executed no program */

/* Time after which work queued before the probes were set is assumed to be done. */
#define GPU_UNKNOWN_NS 5000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GPU_PROCESSES);
	__type(key, uint32_t);
	__type(value, struct gpu_process);
} gpu_processes SEC(".maps");

/* The synchronising call that a thread is in. */
struct gpu_thread {
	uint64_t begin_ns; /* 0: in no such call */
	uint64_t sp; /* stack pointer at its entry, which distinguishes its return from an inner call's */
	uint64_t stream;
	uint64_t n_work; /* launches and copies of the process at its entry */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpu_thread);
} gpu_threads SEC(".maps");

const volatile uint64_t recording_start_boottime_ns;
uint32_t gpu_work_unseen; /* set by the collector when it stops probing launches */

static __always_inline struct gpu_process *gpu_process_of(struct task_struct *task)
{
	struct gpu_process fresh = {.start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime)};
	uint32_t tgid = task->tgid;
	struct gpu_process *process = bpf_map_lookup_elem(&gpu_processes, &tgid);

	if (process && process->start_boottime_ns == fresh.start_boottime_ns)
		return process;
	/* A forked process is probed some milliseconds after it began. */
	if (fresh.start_boottime_ns < recording_start_boottime_ns ||
	    BPF_CORE_READ(task, group_leader, flags) & FORKED_ONLY)
		fresh.unknown_until_ns = bpf_ktime_get_ns() + GPU_UNKNOWN_NS;
	if (bpf_map_update_elem(&gpu_processes, &tgid, &fresh, BPF_ANY))
		return NULL;
	return bpf_map_lookup_elem(&gpu_processes, &tgid);
}

/* CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are handles 1 and 2. They have the meaning that 0 has in each
 * API. */
static __always_inline uint64_t gpu_stream(struct task_struct *task, struct pt_regs *regs, uint64_t cookie)
{
	uint64_t own = 1ULL << 63 | (uint32_t)task->pid;
	uint64_t stream = 0, at;

	switch (GPU_COOKIE_STREAM(cookie)) {
	case GPU_STREAM_1: stream = BPF_CORE_READ(regs, di); break;
	case GPU_STREAM_2: stream = BPF_CORE_READ(regs, si); break;
	case GPU_STREAM_4: stream = BPF_CORE_READ(regs, cx); break;
	case GPU_STREAM_6: stream = BPF_CORE_READ(regs, r9); break;
	case GPU_STREAM_9:
		/* Arguments 7, 8 and 9 lie above the return address. */
		at = BPF_CORE_READ(regs, sp) + 24;
		if (bpf_probe_read_user(&stream, sizeof(stream), (void *)at))
			stream = 0;
		break;
	case GPU_STREAM_CONFIG:
		/* Seven 32-bit numbers and four bytes of padding precede hStream. */
		at = BPF_CORE_READ(regs, di) + 32;
		if (bpf_probe_read_user(&stream, sizeof(stream), (void *)at))
			stream = 0;
		break;
	}
	if (stream == 2 || (!stream && (cookie & GPU_PER_THREAD)))
		return own;
	return stream == 1 ? 0 : stream;
}

static __always_inline void gpu_fill(struct event *event, const struct gpu_process *process, uint64_t stream,
				     uint64_t cookie)
{
	event->gpu.n_launches = process->n_launches;
	event->gpu.n_copies = process->n_copies;
	event->gpu.stream = stream;
	event->gpu.function = GPU_COOKIE_FUNCTION(cookie);
	event->gpu.gpu_flags = 0;
	event->gpu.reserved = 0;
}

/* Counts queued work, which ends a known idle time. */
static __always_inline void gpu_work(struct task_struct *task, struct gpu_process *process, uint64_t stream,
				     uint64_t cookie)
{
	struct event *event;
	uint64_t idle_ns = 0;

	__sync_fetch_and_add(&n_frequent, 1);
	__sync_fetch_and_add(cookie & GPU_LAUNCH ? &process->n_launches : &process->n_copies, 1);
	if (process->has_work && process->stream != stream)
		process->mixed = 1;
	process->stream = stream;
	process->has_work = 1;
	/* Two threads may reach this at the same time; only one of them takes the value. */
	if (process->idle_ns)
		idle_ns = __sync_lock_test_and_set(&process->idle_ns, 0);
	if (!idle_ns)
		return;
	event = detail_begin(EVENT_GPU_WORK, task, idle_ns);
	if (!event)
		return;
	event->start_ns = idle_ns;
	event->end_ns = bpf_ktime_get_ns();
	gpu_fill(event, process, stream, cookie);
	record_submit(event);
}

SEC("?uprobe")
int gpu_enter(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t cookie = bpf_get_attach_cookie(regs), stream, sp;
	struct gpu_process *process;
	struct gpu_thread *thread;

	if (!member_of(task))
		return 0;
	process = gpu_process_of(task);
	if (!process)
		return 0;
	stream = gpu_stream(task, regs, cookie);
	if (cookie & (GPU_LAUNCH | GPU_COPY))
		gpu_work(task, process, stream, cookie);
	if (!(cookie & (GPU_WAITS | GPU_WAITS_MAYBE)))
		return 0;
	thread = bpf_task_storage_get(&gpu_threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread)
		return 0;
	sp = BPF_CORE_READ(regs, sp);
	/* The stack grows down, so this is a call from within the timed call. A higher stack pointer would
	 * mean that the timed call never returned (longjmp, exec). */
	if (thread->begin_ns && sp < thread->sp)
		return 0;
	thread->sp = sp;
	thread->stream = stream;
	thread->n_work = process->n_launches + process->n_copies;
	thread->begin_ns = bpf_ktime_get_ns();
	return 0;
}

/* Returns true if no work is queued. */
static __always_inline bool gpu_drained(const struct gpu_process *process, const struct gpu_thread *thread,
					uint64_t cookie, uint64_t now_ns)
{
	if (gpu_work_unseen || process->n_launches + process->n_copies != thread->n_work)
		return false;
	if (cookie & GPU_DRAINS_ALL)
		return true;
	if (!(cookie & GPU_DRAINS_STREAM) || process->mixed || now_ns < process->unknown_until_ns)
		return false;
	return !process->has_work || process->stream == thread->stream;
}

static __always_inline void gpu_set_idle(struct gpu_process *process, const struct gpu_thread *thread,
					 uint64_t now_ns)
{
	process->has_work = 0;
	process->mixed = 0;
	process->unknown_until_ns = 0;
	process->idle_ns = now_ns;
	/* If another thread has queued work since, it may have read idle_ns before it was set. */
	if (process->n_launches + process->n_copies != thread->n_work) {
		process->has_work = 1;
		process->mixed = 1;
		process->idle_ns = 0;
	}
}

SEC("?uretprobe")
int gpu_leave(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t cookie = bpf_get_attach_cookie(regs), now_ns, begin_ns;
	struct gpu_process *process;
	struct gpu_thread *thread;
	struct event *event;
	bool drained;

	thread = bpf_task_storage_get(&gpu_threads, task, 0, 0);
	/* A return pops the return address, so its stack pointer is 8 above the entry's. */
	if (!thread || !thread->begin_ns || BPF_CORE_READ(regs, sp) != thread->sp + 8)
		return 0;
	begin_ns = thread->begin_ns;
	thread->begin_ns = 0;
	now_ns = bpf_ktime_get_ns();
	if ((cookie & GPU_WAITS_MAYBE) && now_ns - begin_ns < GPU_WAIT_MIN_NS)
		return 0;
	process = gpu_process_of(task);
	if (!process)
		return 0;
	__sync_fetch_and_add(&process->n_waits, 1);
	__sync_fetch_and_add(&process->wait_ns, now_ns - begin_ns);
	drained = gpu_drained(process, thread, cookie, now_ns);
	if (drained)
		gpu_set_idle(process, thread, now_ns);
	event = detail_begin(EVENT_GPU_WAIT, task, begin_ns);
	if (!event)
		return 0;
	event->start_ns = begin_ns;
	event->end_ns = now_ns;
	gpu_fill(event, process, thread->stream, cookie);
	event->gpu.gpu_flags = drained ? GPU_FLAG_DRAINED : 0;
	record_submit(event);
	return 0;
}
