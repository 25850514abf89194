/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* Records when threads run, wait for a CPU or sleep, and the cause of each wake-up. */

#include "groups.h"
#include "usage.h"
#include "recorder.h"

/* The end of a thread's life is its last switch, not sched_process_exit: only here the kernel's CPU time is
 * complete. (An exit that tears down much memory can run for hundreds of ms.) */
static __always_inline void record_exit(struct task_struct *task, struct member *member, uint64_t now_ns)
{
	struct event *event;

	__sync_fetch_and_add(&n_members, -1);
	event = record_begin(&life_ring, EVENT_EXIT, task);
	if (!event)
		return;
	event->start_ns = event->end_ns = now_ns;
	event->exit.exec_ns = task->se.sum_exec_runtime;
	event->exit.queue_ns = member->queue_ns;
	event->exit.sleep_ns = member->sleep_ns;
	event->exit.block_ns = member->block_ns;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* Returns the number of the system call that a task is in, or NO_CALL. Outside of calls, the kernel stores
 * -1 as the number. */
static __always_inline uint16_t current_call(struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	long nr = regs->orig_ax;

	return nr >= 0 && nr < NO_CALL ? nr : NO_CALL;
}

static __always_inline void switch_out(struct task_struct *task, struct member *member, uint64_t now_ns,
				       bool preempt, uint32_t state)
{
	uint16_t flags = 0;

	group_close(task, member);
	if (member->call_ns == CALL_UNTIMED)
		member->call_ns = now_ns;
	if (state & TASK_GONE) {
		use_close(&member->use);
		record_exit(task, member, now_ns);
		return;
	}
	if (preempt)
		state = 0;
	if (!state)
		flags |= EVENT_FLAG_PREEMPTED;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		flags |= EVENT_FLAG_IOWAIT;
	member->off_call = current_call(task);
	if (member->off_call != NO_CALL)
		flags |= EVENT_FLAG_IN_SYSCALL;
	else if (state & TASK_BLOCK)
		flags |=
		    member->fault.start_ns && member->fault.code ? EVENT_FLAG_CODE : EVENT_FLAG_MAJOR_FAULT;
	if (state && member->writeback)
		flags |= EVENT_FLAG_WRITEBACK;
	member->state = state;
	member->flags = flags;
	member->off_ns = now_ns;
	member->switched = 1;
}

/* Adds the time that a thread was off the CPU, split at the waking, to the totals. The waking that ends a
 * sleep is the last one seen, even if it is a little older than off_ns: another CPU can wake a thread
 * between its leaving the run queue and the tracepoint. Without a waking the thread slept all the
 * time. */
static __always_inline void add_totals(struct member *member, uint64_t now_ns)
{
	uint64_t runnable_ns = member->off_ns;

	if (member->state) {
		if (!member->waking_ns)
			runnable_ns = now_ns;
		else if (member->waking_ns > runnable_ns)
			runnable_ns = member->waking_ns;
		if (member->state & TASK_BLOCK)
			member->block_ns += runnable_ns - member->off_ns;
		else
			member->sleep_ns += runnable_ns - member->off_ns;
	}
	member->queue_ns += now_ns - runnable_ns;
}

/* Fills a record of the interval off the CPU that ends at now_ns. */
static __always_inline void fill_switch(struct event *event, struct task_struct *task, struct member *member,
					uint64_t now_ns)
{
	event->start_ns = member->off_ns;
	event->end_ns = now_ns;
	event->flags = member->flags;
	event->sw.waking_ns = member->waking_ns;
	event->sw.exec_ns = task->se.sum_exec_runtime;
	event->sw.waker_tid = member->waker_tid;
	event->sw.state = member->state;
	event->sw.syscall_nr = member->off_call;
	event->sw.waker_context = member->waking_ns ? member->waker_context : WAKER_NONE;
	event->sw.waker_detail = member->waker_detail;
	__builtin_memset(event->sw.reserved, 0, sizeof(event->sw.reserved));
}

static __always_inline void switch_in(struct task_struct *task, struct member *member, uint64_t now_ns)
{
	struct event *event;

	if (!member->off_ns) /* tagged while it was running, after its switch-out: the start is unknown */
		return;
	if (member->waking_ns && member->waking_ns < member->off_ns)
		member->waking_ns = member->off_ns;
	add_totals(member, now_ns);
	if (member->fault.start_ns && member->state) {
		member->fault.n_sleeps++;
		member->fault.sleep_ns += now_ns - member->off_ns;
	}
	event = detail_begin(EVENT_SWITCH, task, member->off_ns);
	if (event) {
		fill_switch(event, task, member, now_ns);
		record_submit(event);
	}
	member->off_ns = 0;
	member->waking_ns = 0;
	member->flags = 0;
}

static __always_inline int on_switch(bool preempt, struct task_struct *prev, struct task_struct *next,
				     unsigned int prev_state)
{
	struct cpu_state *cpu = this_cpu();
	struct member *member;
	bool neighbour = false;
	uint64_t now_ns = 0;

	if (cpu)
		cpu->contexts = 0;
	if (prev->pid && (member = member_of(prev))) {
		now_ns = bpf_ktime_get_ns();
		switch_out(prev, member, now_ns, preempt, prev_state);
	} else if (prev->pid) {
		neighbour = true;
	}
	if (next->pid && (member = member_of(next))) {
		if (!now_ns)
			now_ns = bpf_ktime_get_ns();
		if (neighbour)
			member->flags |= EVENT_FLAG_NEIGHBOUR;
		switch_in(next, member, now_ns);
	}
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	return on_switch(preempt, prev, next, prev_state);
}

/* Before Linux 5.18. The state may be newer: a wake-up on another CPU may have changed it. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(sched_switch_old, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return on_switch(preempt, prev, next, prev->__state);
}

/* This is sched_waking, because sched_wakeup often runs on another CPU than the waker. */
SEC("?tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct member *member = member_of(task);
	struct cpu_state *cpu;
	uint32_t context = WAKER_TASK;

	if (!member)
		return 0;
	cpu = this_cpu();
	if (cpu)
		context = cpu->contexts & 0xff;
	if (member->fault.start_ns)
		member->fault.n_wakeups++;
	member->waker_context = context & 3;
	member->waker_detail = context >> 2;
	member->waker_tid = bpf_get_current_task_btf()->pid;
	member->waking_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("?tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	struct member *member = member_of(task);

	if (!member)
		return 0;
	member->waker_context = WAKER_TASK;
	member->waker_tid = bpf_get_current_task_btf()->pid;
	member->waking_ns = bpf_ktime_get_ns();
	return 0;
}
