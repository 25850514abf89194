/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* Probes at the start and end of ranges that the program names (bpf/phase.h). */

#include "bpf/shared/phase_shared.h"
#include "recorder.h"

static __always_inline struct phase_record *phase_begin(struct task_struct *task, uint32_t kind)
{
	uint64_t now_ns = bpf_ktime_get_ns();
	struct phase_record *record;

	if (now_ns >= detail_until_ns)
		return NULL;
	record = bpf_ringbuf_reserve(&data_ring, sizeof(*record), 0);
	if (!record) {
		count_lost(EVENT_PHASE);
		return NULL;
	}
	record->event.start_ns = record->event.end_ns = now_ns;
	record->event.tid = task->pid;
	record->event.tgid = task->tgid;
	record->event.type = EVENT_PHASE;
	record->event.flags = 0;
	record->event.cpu = bpf_get_smp_processor_id();
	record->event.phase.value = 0;
	record->event.phase.reserved[0] = record->event.phase.reserved[1] = 0;
	record->event.phase.kind = kind;
	record->event.phase.reserved2 = 0;
	record->name[0] = '\0';
	return record;
}

/* Begins the range whose name is at `text` in the program's memory. If the name cannot be read, it is
 * empty. */
static __always_inline void phase_push(struct task_struct *task, const void *text)
{
	struct phase_record *record = phase_begin(task, PHASE_BEGIN);

	if (!record)
		return;
	if (bpf_probe_read_user_str(record->name, sizeof(record->name), text) < 0)
		record->name[0] = '\0';
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* int nvtxRangePushA(const char *message) */
SEC("?uprobe")
int nvtx_push(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (!member_of(task))
		return 0;
	__sync_fetch_and_add(&n_frequent, 1);
	phase_push(task, (const void *)BPF_CORE_READ(regs, di));
	return 0;
}

/* Returns the message of an nvtxEventAttributes_t, if it is a char string. The struct's layout is part of
 * NVTX's interface. */
static __always_inline const void *nvtx_message(const void *attributes)
{
	uint32_t type = 0;
	void *text = NULL;

	if (bpf_probe_read_user(&type, sizeof(type), attributes + 32) || type != 1 ||
	    bpf_probe_read_user(&text, sizeof(text), attributes + 40))
		return NULL;
	return text;
}

/* int nvtxRangePushEx(const nvtxEventAttributes_t *); with a cookie: nvtxDomainRangePushEx(domain,
 * attributes) */
SEC("?uprobe")
int nvtx_push_attributes(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t attributes = BPF_CORE_READ(regs, di);

	if (!member_of(task))
		return 0;
	__sync_fetch_and_add(&n_frequent, 1);
	if (bpf_get_attach_cookie(regs))
		attributes = BPF_CORE_READ(regs, si);
	phase_push(task, nvtx_message((const void *)attributes));
	return 0;
}

SEC("?uprobe")
int nvtx_pop(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct phase_record *record;

	if (!member_of(task))
		return 0;
	__sync_fetch_and_add(&n_frequent, 1);
	record = phase_begin(task, PHASE_END);
	if (record)
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* The cookie holds the name's key and the kind. */
SEC("?uprobe")
int usdt_phase(struct pt_regs *regs)
{
	struct task_struct *task = bpf_get_current_task_btf();
	uint64_t cookie = bpf_get_attach_cookie(regs);
	struct phase_record *record;

	if (!member_of(task))
		return 0;
	__sync_fetch_and_add(&n_frequent, 1);
	record = phase_begin(task, cookie & PHASE_COOKIE_END ? PHASE_END : PHASE_BEGIN);
	if (!record)
		return 0;
	record->event.phase.value = cookie & ~PHASE_COOKIE_END;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}
