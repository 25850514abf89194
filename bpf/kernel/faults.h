/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
 * Page faults in mapped files. No tracepoint marks the end of a fault, but the kernel's software event for
 * major faults fires there; the collector opens it on every CPU. Without it EVENT_SWITCH still shows how long
 * a fault slept, and only the time that it computed is missing.
 */

#include "pages.h"

#define LIBRARY_NAME 64

/* Recognises a shared library by its name, "libfoo.so" or "libfoo.so.1", because its file need not be
 * executable. */
static __always_inline bool is_library(struct inode *inode)
{
	struct dentry *dentry = dentry_of(inode);
	char name[LIBRARY_NAME + 4] = {0};

	if (!dentry)
		return false;
	bpf_probe_read_kernel_str(name, LIBRARY_NAME, BPF_CORE_READ(dentry, d_name.name));
	for (int i = 0; i < LIBRARY_NAME; i++)
		if (name[i] == '.' && name[i + 1] == 's' && name[i + 2] == 'o' &&
		    (!name[i + 3] || name[i + 3] == '.'))
			return true;
	return false;
}

static __always_inline bool is_code(struct task_struct *task, struct inode *inode)
{
	return BPF_CORE_READ(task, mm, exe_file, f_inode) == inode || is_library(inode);
}

SEC("?tp_btf/mm_filemap_fault")
int BPF_PROG(mm_filemap_fault, struct address_space *mapping, unsigned long page)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct file_fault *fault;
	struct file_use *use;
	struct inode *inode;
	bool code;

	if (!member)
		return 0;
	inode = typed(mapping, address_space)->host;
	fault = &member->fault;
	/* The kernel retries a fault that had to release the address space lock: this is the same fault. */
	if (fault->start_ns && fault->inode == inode->i_ino && fault->page == page)
		return 0;
	/* Faults come in series, so a file's name is checked once per series. */
	code = fault->inode == inode->i_ino && fault->device == inode->i_sb->s_dev ? fault->code
										   : is_code(task, inode);
	__builtin_memset(fault, 0, sizeof(*fault));
	fault->start_ns = bpf_ktime_get_ns();
	fault->inode = inode->i_ino;
	fault->device = inode->i_sb->s_dev;
	fault->page = page;
	fault->code = code;
	use = use_of(member, inode, fault->inode, fault->device);
	use->accessed_pages++;
	use->used_bytes += 1 << PAGE_SHIFT;
	use->n_minor_faults++; /* undone if it turns out to be a major fault */
	use_age(use, fault->start_ns);
	return 0;
}

/* Runs when the kernel maps a page that is in memory together with its neighbours. This includes pages
 * that a fault has just read, and that were counted then. */
SEC("?tp_btf/mm_filemap_map_pages")
int BPF_PROG(mm_filemap_map_pages, struct address_space *mapping, unsigned long first, unsigned long last)
{
	struct member *member = member_of(bpf_get_current_task_btf());
	struct file_use *use;
	struct inode *inode;

	if (!member)
		return 0;
	inode = typed(mapping, address_space)->host;
	if (member->fault.start_ns && member->fault.inode == inode->i_ino && member->fault.page >= first &&
	    member->fault.page <= last)
		return 0;
	use = use_of(member, inode, inode->i_ino, inode->i_sb->s_dev);
	use->accessed_pages++;
	use->used_bytes += 1 << PAGE_SHIFT;
	use->n_minor_faults++;
	return 0;
}

static __always_inline void record_fault(struct task_struct *task, struct file_fault *fault, uint64_t now_ns)
{
	struct event *event = detail_begin(EVENT_FAULT, task, fault->start_ns);

	if (!event)
		return;
	event->start_ns = fault->start_ns;
	event->end_ns = now_ns;
	event->fault.inode = fault->inode;
	event->fault.page = fault->page;
	event->fault.device = fault->device;
	event->fault.added_pages = fault->added_pages;
	event->fault.sleep_ns = fault->sleep_ns;
	event->fault.n_sleeps = fault->n_sleeps;
	event->fault.n_wakeups = fault->n_wakeups;
	record_submit(event);
}

SEC("?perf_event")
int major_fault(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct member *member = member_of(task);
	struct file_fault *fault;
	uint64_t now_ns;

	if (!member || !member->fault.start_ns)
		return 0;
	now_ns = bpf_ktime_get_ns();
	fault = &member->fault;
	if (member->use.n_minor_faults)
		member->use.n_minor_faults--;
	member->use.n_major_faults++;
	member->use.fault_ns += now_ns - fault->start_ns;
	/* A fault within a call is part of the call's time. A fault on code reads no data. */
	if (!member->call_ns && !fault->code) {
		group_close(task, member);
		record_fault(task, fault, now_ns);
	}
	fault->start_ns = 0;
	return 0;
}
