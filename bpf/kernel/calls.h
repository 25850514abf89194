/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Watched system calls, from entry to exit. These two programs run for every call of every process of the
 * machine, so both check the call's number first.
 */

#include "groups.h"
#include "lifecycle.h"
#include "pages.h"
#include "usage.h"
#include "recorder.h"
#include "syscalls_x86_64.h"

/* Minimum duration of a recorded look-up, in ns: a look-up that did not sleep tells nothing, and look-ups
 * are as frequent as reads. */
#define CALL_STAT_MIN_NS 20000

#define MAP_ANONYMOUS 0x20
#define PROT_EXEC     0x4

#define CALL_ENTRY(name, number, kind) [number] = kind,
static const uint8_t call_args[WATCHED_NUMBERS] = {WATCHED_CALLS(CALL_ENTRY)};

struct pollfd_user {
	int32_t fd;
	uint32_t events;
};

static __always_inline void call_poll(struct task_struct *task, struct member *member, struct pt_regs *regs,
				      bool fast)
{
	struct pollfd_user first = {.fd = -1};

	member->argument = regs->si;
	if (regs->si && bpf_probe_read_user(&first, sizeof(first), (void *)regs->di))
		first.fd = -1;
	member->fd = first.fd;
	member_file(task, member, first.fd, fast);
}

/* Reads the arguments that the record needs. Returns false if this call is not wanted. */
static __always_inline bool call_begin(struct task_struct *task, struct member *member, struct pt_regs *regs,
				       uint32_t kind, bool fast)
{
	member_no_file(member);
	member->argument = 0;
	member->fd = -1;
	switch (kind) {
	case ARGS_FD:
		member->argument = regs->dx;
		/* fall through */
	case ARGS_CLOSE:
	case ARGS_SYNC:
		member->fd = regs->di;
		member_file(task, member, member->fd, fast);
		break;
	case ARGS_SENDFILE:
		member->argument = regs->r10;
		member->fd = regs->si;
		member_file(task, member, member->fd, fast);
		break;
	case ARGS_OPEN: member->argument = regs->si; break;
	case ARGS_OPENAT:
		member->argument = regs->dx;
		if (member->nr == NR_openat2 && bpf_probe_read_user(&member->argument, 8, (void *)regs->dx))
			member->argument = 0;
		member->fd = regs->di;
		break;
	case ARGS_PATH:
	case ARGS_STAT:
		member->fd = regs->di;
		member_file(task, member, member->fd, fast);
		break;
	case ARGS_POLL: call_poll(task, member, regs, fast); break;
	case ARGS_COUNT: member->argument = regs->di; break;
	case ARGS_MMAP:
		if (regs->r10 & MAP_ANONYMOUS)
			return false;
		member->argument = regs->si;
		member->fd = regs->r8;
		member_file(task, member, member->fd, fast);
		break;
	case ARGS_FUTEX:
		member->inode = regs->di;
		member->argument = regs->si;
		break;
	}
	return true;
}

/* Returns true for a further read of the same file in a long series of quick reads, to which the previous
 * read's data applies too. */
static __always_inline bool call_repeats(const struct member *member, const struct pt_regs *regs, long nr)
{
	const struct call_group *group = &member->group;

	return group->n_calls >= GROUP_TIMED_FROM && group->n_calls % GROUP_TIMED_EVERY && member->nr == nr &&
	       member->fd == (int32_t)regs->di && call_reads(nr);
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long nr)
{
	struct task_struct *task;
	struct member *member;
	uint32_t kind;

	if ((unsigned long)nr >= WATCHED_NUMBERS)
		return 0;
	kind = call_args[nr];
	if (!kind)
		return 0;
	task = bpf_get_current_task_btf();
	member = member_of(task);
	if (!member)
		return 0;
	member->clipped = 0;
	member->switched = 0;
	member->writeback = kind == ARGS_SYNC; /* every sleep in a sync call waits for writeback */
	member->fault.start_ns = 0;
	if (call_repeats(member, regs, nr)) {
		member->argument = regs->dx;
		member->call_ns = CALL_UNTIMED;
		return 0;
	}
	member->nr = nr;
	member->call_ns = call_begin(task, member, regs, kind, true) ? bpf_ktime_get_ns() : 0;
	return 0;
}

/* Begins a call that was in progress when the thread was tagged. The call counts from that time. */
static __always_inline bool call_resume(struct task_struct *task, struct member *member, struct pt_regs *regs,
					long nr)
{
	if (!member->clipped)
		return false;
	member->nr = nr;
	return call_begin(task, member, regs, call_args[nr & (WATCHED_NUMBERS - 1)], false);
}

static __always_inline void call_record(struct task_struct *task, struct member *member, long nr, long result,
					uint16_t flags, uint64_t now_ns)
{
	struct event *event;

	group_close(task, member);
	event = detail_begin(EVENT_SYSCALL, task, member->call_ns);
	if (!event)
		return;
	event->start_ns = member->call_ns;
	event->end_ns = now_ns;
	event->flags = flags;
	event->call.result = result;
	event->call.inode = member->inode;
	event->call.argument = member->argument;
	event->call.fd = member->fd;
	event->call.nr = nr;
	event->call.file_type = member->file_type;
	event->call.source = member->source;
	record_submit(event);
}

static __always_inline void count_read(struct task_struct *task, struct member *member, uint64_t bytes,
				       uint64_t now_ns)
{
	struct file_use *use = use_of_call(task, member);

	use->n_reads++;
	use->used_bytes += bytes;
	if (member->file_flags & O_DIRECT)
		use->direct_bytes += bytes;
	else
		use->accessed_pages += pages_of(bytes);
	size_count(use, bytes);
	use_age(use, now_ns);
}

static __always_inline void count_bytes(struct task_struct *task, struct member *member, uint32_t kind,
					long nr, long result, uint64_t now_ns)
{
	if ((kind != ARGS_FD && kind != ARGS_SENDFILE) || result < 0)
		return;
	if (member->file_type == EVENT_FILE_REG) {
		if ((call_reads(nr) || kind == ARGS_SENDFILE) && member->source != SOURCE_MEMORY)
			count_read(task, member, result, now_ns);
	} else if (member->file_type == EVENT_FILE_SOCK && member->source == SOURCE_NETWORK &&
		   (call_reads(nr) || nr == NR_recvfrom || nr == NR_recvmsg)) {
		if (!member->use.since_ns)
			member->use.since_ns = now_ns;
		member->use.network_bytes += result;
		use_age(&member->use, now_ns);
	}
}

static __always_inline void call_end(struct task_struct *task, struct member *member, struct pt_regs *regs,
				     uint32_t kind, long result, uint16_t flags)
{
	uint64_t now_ns = bpf_ktime_get_ns();
	uint64_t took_ns = now_ns - member->call_ns;
	long nr = member->nr;

	if (kind == ARGS_STAT && took_ns < CALL_STAT_MIN_NS) {
		group_extend(member, now_ns);
		return;
	}
	count_bytes(task, member, kind, nr, result, now_ns);
	if ((kind == ARGS_OPEN || kind == ARGS_OPENAT) && result >= 0)
		member_file(task, member, result, true);
	if (took_ns < GROUP_CALL_MAX_NS && !flags && group_takes(member, kind, result)) {
		group_add(task, member, kind, nr, result, now_ns);
		return;
	}
	if (kind == ARGS_MMAP && (regs->dx & PROT_EXEC) && result > 0)
		record_library(task, member);
	call_record(task, member, nr, result, flags, now_ns);
}

/* Returns false if the call must be handled like any other. */
static __always_inline bool call_end_untimed(struct task_struct *task, struct member *member, long result)
{
	if (member->call_ns != CALL_UNTIMED)
		return false;
	if (result < 0) {
		member->call_ns = bpf_ktime_get_ns();
		return false;
	}
	count_read(task, member, result, 0);
	group_add_untimed(member, result);
	return true;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	unsigned long nr = regs->orig_ax;
	struct task_struct *task;
	struct member *member;
	uint32_t kind;
	uint16_t flags = 0;

	if (nr >= WATCHED_NUMBERS)
		return 0;
	kind = call_args[nr];
	if (!kind)
		return 0;
	task = bpf_get_current_task_btf();
	member = member_of(task);
	if (!member)
		return 0;
	if (member->clipped) {
		flags = EVENT_FLAG_CLIPPED;
		if (!call_resume(task, member, regs, nr))
			member->call_ns = 0;
		member->clipped = 0;
	}
	if (!member->call_ns)
		return 0;
	if (!call_end_untimed(task, member, result))
		call_end(task, member, regs, kind, result, flags);
	member->call_ns = 0;
	return 0;
}
