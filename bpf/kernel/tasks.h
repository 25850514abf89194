/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Task iterators, which the collector starts. One tags the threads of a running process and of its
 * descendants; the other writes, at the end, the last records of living threads. Both write records to the
 * iterator's own file, so no record is lost.
 */

#include "groups.h"
#include "recorder.h"
#include "lifecycle.h"
#include "sched.h"

#define ANCESTORS_MAX 64 /* maximum depth of descendants below the tagged process */

static __always_inline bool wanted(struct task_struct *task)
{
	task = typed(task, task_struct);
	for (int i = 0; i < ANCESTORS_MAX; i++) {
		if ((uint32_t)task->tgid == tag_tgid)
			return true;
		if (no_children || (uint32_t)task->tgid == recorder_tgid || task->pid <= 1)
			return false;
		task = task->real_parent;
		if (!task)
			return false;
	}
	return false;
}

static __always_inline void event_init(struct event *event, struct task_struct *task, uint32_t type,
				       uint64_t now_ns)
{
	__builtin_memset(event, 0, sizeof(*event));
	event->start_ns = event->end_ns = now_ns;
	event->tid = task->pid;
	event->tgid = task->tgid;
	event->type = type;
	event->cpu = bpf_get_smp_processor_id();
}

/* Starts the thread's current interval at now_ns. A concurrent switch overwrites this with better values. */
static __always_inline void tag_begin(struct task_struct *task, struct member *member, uint64_t now_ns)
{
	uint32_t state = task->__state;

	member->off_call = NO_CALL;
	member->clipped = 1;
	member->call_ns = now_ns;
	if (task->on_cpu)
		return;
	member->state = state & 0xffff;
	member->flags = EVENT_FLAG_CLIPPED | (state ? 0 : EVENT_FLAG_PREEMPTED);
	member->off_call = current_call(task);
	if (member->off_call != NO_CALL)
		member->flags |= EVENT_FLAG_IN_SYSCALL;
	member->off_ns = now_ns;
}

SEC("?iter/task")
int tag_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member;
	struct event event;
	uint64_t now_ns;

	if (!task || !wanted(task) || member_of(task))
		return 0;
	now_ns = bpf_ktime_get_ns();
	event_init(&event, task, EVENT_ALIVE, now_ns);
	fill_name(&event, task);
	/* If the page is full, the kernel drops the output of this call, and calls again for the same
	 * task. So tag only after a successful write. */
	if (bpf_seq_write(ctx->meta->seq, &event, sizeof(event)))
		return 0;
	event.type = EVENT_NAME;
	if (bpf_seq_write(ctx->meta->seq, &event, sizeof(event)))
		return 0;
	member = bpf_task_storage_get(&members, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member) {
		__sync_fetch_and_add(&n_storage_failures, 1);
		return 0;
	}
	tag_begin(task, member, now_ns);
	__sync_fetch_and_add(&n_members, 1);
	return 0;
}

static __always_inline void close_switch(struct bpf_iter__task *ctx, struct task_struct *task,
					 struct member *member, uint64_t now_ns)
{
	struct event event;

	event_init(&event, task, EVENT_SWITCH, now_ns);
	fill_switch(&event, task, member, now_ns);
	event.flags |= EVENT_FLAG_CLIPPED;
	bpf_seq_write(ctx->meta->seq, &event, sizeof(event));
}

static __always_inline void close_call(struct bpf_iter__task *ctx, struct task_struct *task,
				       struct member *member, uint64_t now_ns)
{
	struct event event;

	event_init(&event, task, EVENT_SYSCALL, now_ns);
	event.start_ns = member->call_ns;
	event.flags = EVENT_FLAG_CLIPPED;
	event.call.result = -115; /* -EINPROGRESS */
	event.call.inode = member->inode;
	event.call.argument = member->argument;
	event.call.fd = member->fd;
	event.call.nr = member->nr;
	event.call.file_type = member->file_type;
	event.call.source = member->source;
	bpf_seq_write(ctx->meta->seq, &event, sizeof(event));
}

static __always_inline void write_group(struct bpf_iter__task *ctx, struct task_struct *task,
					const struct call_group *group, uint64_t now_ns)
{
	struct event event;

	event_init(&event, task, group_type(group), now_ns);
	fill_group(&event, group);
	bpf_seq_write(ctx->meta->seq, &event, sizeof(event));
}

/* Runs after all hooks are off. It works on a copy, because the kernel may call it twice for a task (see
 * tag_tasks). */
SEC("?iter/task")
int close_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct member *member, copy;
	struct event event;
	uint64_t now_ns;

	if (!task)
		return 0;
	member = member_of(task);
	if (!member)
		return 0;
	use_close(&member->use);
	copy = *member;
	member = &copy;
	now_ns = bpf_ktime_get_ns();
	if (member->group.n_calls)
		write_group(ctx, task, &member->group, now_ns);
	if (member->call_ns > CALL_UNTIMED && !member->clipped)
		close_call(ctx, task, member, now_ns);
	if (member->off_ns) {
		add_totals(member, now_ns);
		close_switch(ctx, task, member, now_ns);
	}
	event_init(&event, task, EVENT_TOTALS, now_ns);
	event.exit.exec_ns = task->se.sum_exec_runtime;
	event.exit.queue_ns = member->queue_ns;
	event.exit.sleep_ns = member->sleep_ns;
	event.exit.block_ns = member->block_ns;
	bpf_seq_write(ctx->meta->seq, &event, sizeof(event));
	return 0;
}
