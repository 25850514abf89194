/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * next() of PyTorch's DataLoader, and of everything that is built on it. Since 1.5 it runs inside of a
 * record_function("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"): an at::RecordFunction is
 * made when it begins, and its end() is called when it ends. That happens a few times per step, because
 * optimizers do the same, and with each Tensor.numpy(); operators do it only while a profiler runs.
 */

#include "groups.h"
#include "recorder.h"

#define BATCH_NAME_BYTES 24 /* "enumerate(DataLoader)#_S" */

/* Returns enum mark_batch if a std::string with such a name is at this address, else 0. In all versions of
 * std::string the address of the text comes first. */
static __always_inline uint32_t batch_kind(uint64_t string)
{
	const char wanted[BATCH_NAME_BYTES - 2] = "enumerate(DataLoader)#";
	char name[BATCH_NAME_BYTES];
	uint64_t text = 0;

	if (bpf_probe_read_user(&text, sizeof(text), (void *)string) ||
	    bpf_probe_read_user(name, sizeof(name), (void *)text))
		return 0;
	for (int i = 0; i < (int)sizeof(wanted); i++)
		if (name[i] != wanted[i])
			return 0;
	return name[BATCH_NAME_BYTES - 2] == '_' && name[BATCH_NAME_BYTES - 1] == 'S' ? MARK_BATCH_INLINE
										      : MARK_BATCH_WORKERS;
}

static __always_inline void batch_mark(struct task_struct *task, struct member *member, uint32_t kind,
				       uint32_t value)
{
	struct event *event;

	group_close(task, member);
	event = record_begin(&life_ring, EVENT_MARK, task);
	if (!event)
		return;
	event->start_ns = event->end_ns = bpf_ktime_get_ns();
	event->mark.kind = kind;
	event->mark.value = value;
	event->mark.reserved[0] = event->mark.reserved[1] = 0;
	event->mark.reserved2 = 0;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* intrusive_ptr record_function_enter_new(const std::string &name, ...) makes a RecordFunction. Its first
 * argument register holds the address for the result. */
SEC("?uprobe")
int batch_named(struct pt_regs *regs)
{
	struct member *member = member_of(bpf_get_current_task_btf());

	if (!member)
		return 0;
	member->batch_kind = batch_kind(BPF_CORE_READ(regs, si));
	if (member->batch_kind)
		member->batch_is_named = true;
	return 0;
}

/* In PyTorch 1 the caller of RecordFunction's constructor is a function that cannot be probed. The caller
 * needs the name afterwards, so the name is in a register that calls preserve. */
static __always_inline uint32_t batch_kind_of_caller(struct pt_regs *regs)
{
	uint32_t kind = batch_kind(BPF_CORE_READ(regs, r12));

	if (!kind)
		kind = batch_kind(BPF_CORE_READ(regs, bx));
	if (!kind)
		kind = batch_kind(BPF_CORE_READ(regs, bp));
	return kind ? kind : batch_kind(BPF_CORE_READ(regs, r13));
}

/* RecordFunction::RecordFunction(RecordScope) */
SEC("?uprobe")
int batch_begin(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	uint64_t scope = BPF_CORE_READ(regs, di);
	uint32_t kind;

	if (!member)
		return 0;
	kind = member->batch_kind;
	member->batch_kind = 0;
	if (!kind && !member->batch_is_named)
		kind = batch_kind_of_caller(regs);
	/* A loader that a dataset itself uses is part of the outer loader's next(). */
	if (!kind || (member->batch_scope && member->batch_scope != scope))
		return 0;
	member->batch_scope = scope;
	batch_mark(task, member, MARK_BATCH_BEGIN, kind);
	return 0;
}

/* void RecordFunction::end() */
SEC("?uprobe")
int batch_end(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);

	if (!member || !member->batch_scope || member->batch_scope != BPF_CORE_READ(regs, di))
		return 0;
	member->batch_scope = 0;
	batch_mark(task, member, MARK_BATCH_END, 0);
	return 0;
}
