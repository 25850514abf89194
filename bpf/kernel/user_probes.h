/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* User-space probes. A probe is attached to a file, so every process that maps the file hits it; only
 * threads of the job count. */

#include "groups.h"
#include "recorder.h"

SEC("?uprobe")
int engine_execute(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct event *event;

	if (!member)
		return 0;
	group_close(task, member);
	event = record_begin(&life_ring, EVENT_STEP, task);
	if (!event)
		return 0;
	event->start_ns = event->end_ns = bpf_ktime_get_ns();
	__builtin_memset(event->payload, 0, sizeof(event->payload));
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* void diesel_mark(uint32_t kind, uint64_t value) of libdiesel. */
SEC("?uprobe")
int diesel_mark(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct event *event;

	if (!member)
		return 0;
	group_close(task, member);
	event = record_begin(&life_ring, EVENT_MARK, task);
	if (!event)
		return 0;
	event->start_ns = event->end_ns = bpf_ktime_get_ns();
	event->mark.kind = BPF_CORE_READ(regs, di);
	event->mark.value = BPF_CORE_READ(regs, si);
	event->mark.reserved[0] = event->mark.reserved[1] = 0;
	event->mark.reserved2 = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}
