/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Call groups: quick calls on files, one after the other, become one record. A loader of small files makes
 * 100,000 and more of them per second, and a record for each would cost more than the calls.
 *
 * A group covers only time in which the thread had a CPU: whatever takes the CPU away closes the group first,
 * and so does any other watched call, a step or a mark. So its record comes before the record of what closed
 * it.
 */

#include "recorder.h"
#include "files.h"
#include "syscalls_x86_64.h"

#define GROUP_CALL_MAX_NS 200000  /* a longer call gets its own record */
#define GROUP_GAP_MAX_NS  100000  /* maximum computing between calls; decoding a sample takes longer */
#define GROUP_SPAN_MAX_NS 4000000 /* maximum span, so that a long scan is visible while in progress */
#define GROUP_CALLS_MAX   4096

/* In a long series of quick reads, only every fourth is timed: reading the clock costs more than everything
 * else. */
#define GROUP_TIMED_FROM  16
#define GROUP_TIMED_EVERY 4

static __always_inline void fill_group(struct event *event, const struct call_group *group)
{
	event->start_ns = group->start_ns;
	event->end_ns = group->end_ns;
	if (group->n_calls == 1) {
		event->call.result = group->result;
		event->call.inode = group->inode;
		event->call.argument = group->argument;
		event->call.fd = group->fd;
		event->call.nr = group->nr;
		event->call.file_type = group->file_type;
		event->call.source = group->source;
		return;
	}
	event->calls.inode = group->inode;
	event->calls.bytes = group->bytes;
	event->calls.busy_ns = group->busy_ns < group->end_ns - group->start_ns
				   ? group->busy_ns
				   : group->end_ns - group->start_ns;
	event->calls.n_calls = group->n_calls;
	event->calls.n_reads = group->n_reads;
	event->calls.n_opens = group->n_opens;
	event->calls.file_type = group->file_type;
	event->calls.source = group->source;
	event->calls.reserved = 0;
}

static __always_inline uint32_t group_type(const struct call_group *group)
{
	return group->n_calls == 1 ? EVENT_SYSCALL : EVENT_CALLS;
}

static __always_inline void group_close(struct task_struct *task, struct member *member)
{
	struct call_group *group = &member->group;
	struct event *event;

	if (!group->n_calls)
		return;
	event = detail_begin(group_type(group), task, group->start_ns);
	if (event) {
		fill_group(event, group);
		record_submit(event);
	}
	group->n_calls = 0;
}

/* Returns true if the call that is about to end may be part of a group. */
static __always_inline bool group_takes(const struct member *member, uint32_t kind, int64_t result)
{
	if (member->switched || member->file_mode & FMODE_WRITE)
		return false;
	switch (kind) {
	case ARGS_OPEN:
	case ARGS_OPENAT:
		if (member->argument & 3)
			return false;
		return result < 0 || member->file_type == EVENT_FILE_REG ||
		       member->file_type == EVENT_FILE_DIR;
	case ARGS_FD:
	case ARGS_CLOSE: return member->file_type == EVENT_FILE_REG || member->file_type == EVENT_FILE_DIR;
	}
	return false;
}

static __always_inline bool group_goes_on(const struct call_group *group, uint64_t start_ns, uint64_t now_ns)
{
	return group->n_calls && start_ns - group->end_ns < GROUP_GAP_MAX_NS &&
	       now_ns - group->start_ns < GROUP_SPAN_MAX_NS && group->n_calls < GROUP_CALLS_MAX;
}

static __always_inline void group_add(struct task_struct *task, struct member *member, uint32_t kind,
				      uint16_t nr, int64_t result, uint64_t now_ns)
{
	struct call_group *group = &member->group;

	if (!group_goes_on(group, member->call_ns, now_ns)) {
		group_close(task, member);
		group->start_ns = member->call_ns;
		group->bytes = group->busy_ns = 0;
		group->n_reads = group->n_opens = 0;
	}
	group->n_calls++;
	group->end_ns = now_ns;
	group->last_ns = now_ns - member->call_ns;
	group->busy_ns += group->last_ns;
	group->result = result;
	group->inode = member->inode;
	group->argument = member->argument;
	group->fd = member->fd;
	group->nr = nr;
	group->file_type = member->file_type;
	group->source = member->source;
	if (result < 0)
		return;
	if (kind == ARGS_FD) {
		group->bytes += result;
		group->n_reads++;
	} else if (kind != ARGS_CLOSE) {
		group->n_opens++;
	}
}

/* Counts an untimed read with the duration of the last timed one. Up to three of them may be after the
 * recorded end of the group. */
static __always_inline void group_add_untimed(struct member *member, int64_t result)
{
	struct call_group *group = &member->group;

	group->n_calls++;
	group->n_reads++;
	group->bytes += result;
	group->busy_ns += group->last_ns;
	group->result = result;
	group->argument = member->argument;
}

/* A quick look-up extends a group if there is one; otherwise nothing is recorded. */
static __always_inline void group_extend(struct member *member, uint64_t now_ns)
{
	struct call_group *group = &member->group;

	/* Writes a group of one call as an ordinary record of that call. */
	if (group->n_calls < 2 || !group_goes_on(group, member->call_ns, now_ns))
		return;
	group->n_calls++;
	group->end_ns = now_ns;
	group->busy_ns += now_ns - member->call_ns;
}
