/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* The job's threads, their names, and the code that they map. These events are rare, and have a ring of
 * their own, so that a flood of calls cannot displace them. */

#include "bpf/shared/library_shared.h"
#include "recorder.h"

#define CLONE_VM 0x100

static __always_inline void fill_name(struct event *event, struct task_struct *task)
{
	/* A probe read makes the pointer a number to the verifier, which rejects adding an unbounded number
	 * to a pointer before Linux 6.9. */
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	struct upid *number = NULL;

	bpf_probe_read_kernel(event->name.comm, sizeof(event->name.comm), task->comm);
	event->name.start_boottime_ns = task->start_boottime;
	event->name.parent_tgid = typed(task, task_struct)->real_parent->tgid;
	event->name.ns_tid = task->pid;
	if (pid) {
		/* numbers[] has an entry for each level of PID namespaces; the last is the innermost. */
		number = (void *)pid + bpf_core_field_offset(struct pid, numbers) +
			 BPF_CORE_READ(pid, level) * bpf_core_type_size(struct upid);
		event->name.ns_tid = BPF_CORE_READ(number, nr);
	}
}

static __always_inline void record_name(struct task_struct *task, uint64_t now_ns, const char *comm)
{
	struct event *event = record_begin(&life_ring, EVENT_NAME, task);

	if (!event)
		return;
	event->start_ns = event->end_ns = now_ns;
	fill_name(event, task);
	if (comm) {
		__builtin_memset(event->name.comm, 0, sizeof(event->name.comm));
		bpf_probe_read_kernel_str(event->name.comm, sizeof(event->name.comm), comm);
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* Returns true if the collector wants to probe a library of this name. */
static __always_inline bool library_wanted(const char *name)
{
	if (name[0] != 'l' || name[1] != 'i' || name[2] != 'b')
		return false;
	return (name[3] == 't' && name[4] == 'o' && name[5] == 'r') ||
	       (name[3] == 'd' && name[4] == 'i' && name[5] == 'e') ||
	       (name[3] == 'c' && name[4] == 'u' && name[5] == 'd');
}

/* Files reported to the collector: enum library_told. A job maps hundreds, and all its processes map the
 * same ones. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct library_key);
	__type(value, uint8_t);
} libraries SEC(".maps");

/* A program that runs in a process, and a file that is probed. */
struct library_user {
	struct library_key library;
	uint64_t start_boottime_ns, memory, n_execs; /* n_execs, because a memory address may be reused */
};

/* Processes reported to the collector because they map a probed file. Probes are set separately in each
 * process. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct library_user);
	__type(value, uint8_t);
} library_users SEC(".maps");

/* Returns true if it was already reported that this process maps the file; else marks it as reported. */
static __always_inline bool library_known(struct task_struct *task, const struct member *member,
					  const struct library_key *key)
{
	struct library_user user = {.library = *key,
				    .start_boottime_ns = BPF_CORE_READ(task, group_leader, start_boottime),
				    .memory = (uint64_t)typed(task, task_struct)->mm,
				    .n_execs = member->n_execs};
	uint8_t *told = bpf_map_lookup_elem(&libraries, key), one = LIBRARY_TOLD;

	if (told && *told != LIBRARY_PROBED)
		return true;
	if (!told)
		bpf_map_update_elem(&libraries, key, &one, BPF_ANY);
	if (bpf_map_lookup_elem(&library_users, &user))
		return true;
	bpf_map_update_elem(&library_users, &user, &one, BPF_ANY);
	return false;
}

/* Any file may be a wanted library under another name. One with the right name wakes the collector at once,
 * because the job may call into it within milliseconds. */
static __always_inline void record_library(struct task_struct *task, const struct member *member)
{
	struct file *file = file_of_fd(task, member->fd);
	struct library_key key = {};
	struct event *event;

	if (!file)
		return;
	key.inode = BPF_CORE_READ(file, f_inode, i_ino);
	key.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	if (library_known(task, member, &key))
		return;
	event = record_begin(&life_ring, EVENT_LIBRARY, task);
	if (!event)
		return;
	event->start_ns = event->end_ns = bpf_ktime_get_ns();
	event->library.inode = key.inode;
	event->library.device = key.device;
	__builtin_memset(event->library.name, 0, sizeof(event->library.name));
	bpf_probe_read_kernel_str(event->library.name, sizeof(event->library.name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	bpf_ringbuf_submit(event,
			   library_wanted(event->library.name) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* task_newtask fires after the last point where a fork can fail, and before the child can run. */
SEC("?tp_btf/task_newtask")
int BPF_PROG(task_newtask, struct task_struct *child, uint64_t clone_flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member;
	struct event *event;
	uint64_t now_ns;

	if (!member_of(task) || (no_children && child->tgid != task->tgid))
		return 0;
	member = bpf_task_storage_get(&members, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member) {
		__sync_fetch_and_add(&n_storage_failures, 1);
		return 0;
	}
	now_ns = bpf_ktime_get_ns();
	member->off_ns = now_ns; /* runnable, without a CPU yet */
	member->off_call = NO_CALL;
	__sync_fetch_and_add(&n_members, 1);
	event = record_begin(&life_ring, EVENT_FORK, task);
	if (event) {
		event->start_ns = event->end_ns = now_ns;
		event->fork.child_tid = child->pid;
		event->fork.child_tgid = child->tgid;
		event->fork.clone_flags = clone_flags;
		event->fork.child_start_boottime_ns = child->start_boottime;
		event->fork.reserved = 0;
		/* A new process is probed at once. */
		bpf_ringbuf_submit(event, clone_flags & CLONE_VM ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
	}
	record_name(child, now_ns, NULL);
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task)
{
	struct member *member = member_of(task);
	struct event *event;

	if (!member)
		return 0;
	member->n_execs++;
	event = record_begin(&life_ring, EVENT_EXEC, task);
	if (!event)
		return 0;
	event->start_ns = event->end_ns = bpf_ktime_get_ns();
	__builtin_memset(event->payload, 0, sizeof(event->payload));
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}

SEC("?tp_btf/task_rename")
int BPF_PROG(task_rename, struct task_struct *task, const char *comm)
{
	if (member_of(task))
		record_name(task, bpf_ktime_get_ns(), comm);
	return 0;
}
