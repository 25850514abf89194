/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* Shared by all parts of the recorder: maps, the state of a thread, counters, and writing records. */

#include <stdbool.h>

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "bpf/event.h"
#include "core_types.h"

#define TASK_SLEEP   0x1  /* TASK_INTERRUPTIBLE */
#define TASK_BLOCK   0x2  /* TASK_UNINTERRUPTIBLE */
#define TASK_GONE    0x80 /* TASK_DEAD: the last switch of a thread's life */
#define NO_CALL      0xffff
#define CALL_UNTIMED 1 /* call_ns of a call whose start was not timed: a further quick read in a series */
#define EVENT_TYPES  EVENT_TYPE_LIMIT

/* Quick calls on files that wait to become one record. */
struct call_group {
	uint64_t start_ns, end_ns;
	/* fields of the last call; a group of one call is recorded with them */
	int64_t result;
	uint64_t inode;
	uint64_t argument;
	int32_t fd;
	uint16_t nr;
	uint8_t file_type;
	uint8_t source;
	uint32_t bytes;
	uint32_t busy_ns;
	uint16_t n_calls; /* 0: no group */
	uint16_t n_reads;
	uint16_t n_opens;
	uint16_t reserved;
	uint32_t last_ns; /* duration of the last timed call */
	uint32_t reserved2;
};

/* A thread's use of its current file. Added to the maps when the thread uses another file. */
struct file_use {
	uint64_t since_ns; /* 0: nothing to add */
	uint64_t inode;
	uint32_t device;
	uint32_t size_class; /* size class of each of the last n_of_size reads */
	uint32_t n_of_size;
	uint32_t accessed_pages, missed_pages;
	uint32_t n_reads;
	uint32_t n_minor_faults, n_major_faults;
	uint32_t fault_page_kib; /* touched by faults */
	uint64_t fault_ns;
	uint64_t used_bytes, direct_bytes, network_bytes;
};

/* A fault in a mapped file, from the look-up of the page on, before it is known to be major or minor. */
struct file_fault {
	uint64_t start_ns; /* 0: none */
	uint64_t inode, page;
	uint32_t device;
	uint32_t added_pages;
	uint32_t sleep_ns;
	uint16_t n_sleeps, n_wakeups;
	uint64_t code; /* 1: in the program itself or a shared library, and not in training data */
};

/* A thread of the job. A thread is a member if and only if it has this storage. The storage is inherited at
 * task_newtask, survives exec and dies with the thread, so a reused PID is never mistaken for its
 * predecessor. */
struct member {
	/* written by sched_switch, sched_waking */
	uint64_t off_ns; /* time when the thread left the CPU; 0: running, or was running when tagged */
	uint64_t waking_ns;
	uint32_t waker_tid;
	uint16_t state;
	uint16_t flags;
	uint16_t off_call; /* system call in which the thread left the CPU, or NO_CALL */
	uint8_t waker_context;
	uint8_t waker_detail;
	uint32_t file_type;
	/* totals; the kernel has the CPU time (se.sum_exec_runtime) */
	uint64_t queue_ns;
	uint64_t sleep_ns;
	uint64_t block_ns;
	/* written by sys_enter for sys_exit; call_ns is 0 outside of watched calls, or CALL_UNTIMED */
	uint64_t call_ns;
	uint64_t inode;
	uint64_t argument;
	int32_t fd;
	uint16_t nr;
	uint16_t clipped;    /* the thread is older than the recording, and no call of it has been seen yet */
	uint32_t file_mode;  /* FMODE_WRITE and so on */
	uint32_t file_flags; /* O_DIRECT and so on */
	uint8_t source;
	uint8_t switched;  /* the thread left the CPU since sys_enter */
	uint8_t writeback; /* the thread is about to wait for writeback */
	uint8_t reserved;
	uint32_t device;
	uint32_t n_execs;
	uint64_t batch_scope; /* the RecordFunction of PyTorch's DataLoader.__next__; 0: not in one */
	uint32_t batch_kind;  /* enum mark_batch of the RecordFunction that is made next; 0: not a next() */
	uint32_t batch_is_named; /* batch_named() has seen its next() */
	struct call_group group;
	struct file_use use;
	struct file_fault fault;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
} members SEC(".maps");

/* The collector sizes the rings before load. There are two, so that a flood of calls cannot displace a
 * fork or an exit. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} data_ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} life_ring SEC(".maps");

/* The interrupt contexts of a CPU: a stack, one byte each, innermost in the lowest; 0: none. Low two bits:
 * enum waker_context; the rest: the softirq's number. */
struct cpu_state {
	uint64_t contexts;
	uint32_t n_records;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/* Read by the collector. */
uint64_t lost[EVENT_TYPES];  /* records that found their ring full, by type */
uint64_t n_storage_failures; /* threads that could not be tagged: they are missing from the job */
int64_t n_members;           /* threads of the job that are alive */
uint64_t n_frequent;         /* hits of probes that may be very frequent, to estimate their cost */
/* Set by the collector. */
const volatile uint32_t recorder_tgid;
const volatile uint64_t wakeup_bytes = 4 << 20; /* fill level, in bytes, at which the collector is woken */
const volatile bool no_children;                /* only threads of the tagged processes are part of the job */
uint32_t tag_tgid;
volatile uint64_t detail_until_ns = ~0ULL; /* detail that begins after this only counts towards totals */

static __always_inline struct member *member_of(struct task_struct *task)
{
	return bpf_task_storage_get(&members, task, 0, 0);
}

static __always_inline struct cpu_state *this_cpu(void)
{
	uint32_t key = 0;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline void count_lost(uint32_t type)
{
	__sync_fetch_and_add(&lost[type & (EVENT_TYPES - 1)], 1);
}

/* Returns NULL when the ring is full, and counts the loss. */
static __always_inline struct event *record_begin(void *ring, uint32_t type, struct task_struct *task)
{
	struct event *event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);

	if (!event) {
		count_lost(type);
		return NULL;
	}
	event->tid = task->pid;
	event->tgid = task->tgid;
	event->type = type;
	event->flags = 0;
	event->cpu = bpf_get_smp_processor_id();
	return event;
}

/* Like record_begin(), for detail that began at start_ns. Also returns NULL if detail is switched off. */
static __always_inline struct event *detail_begin(uint32_t type, struct task_struct *task, uint64_t start_ns)
{
	return start_ns < detail_until_ns ? record_begin(&data_ring, type, task) : NULL;
}

/* The collector polls every few tens of ms anyway, so it is woken early only when many records are pending. A
 * query of the fill level has a cost, so it is made only now and then. */
static __always_inline void record_submit(struct event *event)
{
	struct cpu_state *cpu = this_cpu();
	uint64_t flags = BPF_RB_NO_WAKEUP;

	if (cpu && (++cpu->n_records & 255) == 0 &&
	    bpf_ringbuf_query(&data_ring, BPF_RB_AVAIL_DATA) >= wakeup_bytes)
		flags = BPF_RB_FORCE_WAKEUP;
	bpf_ringbuf_submit(event, flags);
}

/* Permits plain loads through a pointer from an array. It is also for loading a pointer out of a structure
 * that the verifier trusts, such as a task. There the verifier looks through the names of all types of the
 * kernel, up to four times for each load: the recorder took twice the time to load. */
#ifdef RECORDER_WITHOUT_CAST
#define typed(pointer, type) ((struct type *)(pointer))
#else
extern void *bpf_rdonly_cast(const void *object, uint32_t btf_id) __ksym; /* since Linux 6.2 */
#define typed(pointer, type) ((struct type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(struct type)))
#endif

/* Returns the open file behind a descriptor of the current task, or NULL. The result is for probe reads
 * only. */
static __always_inline struct file *file_of_fd(struct task_struct *task, int32_t fd)
{
	struct files_struct *files = typed(task, task_struct)->files;
	struct file *file = NULL;
	struct file **slots;
	struct fdtable *table;

	if (fd < 0 || !files)
		return NULL;
	table = files->fdt;
	if (!table || (uint32_t)fd >= table->max_fds)
		return NULL;
	slots = table->fd;
	bpf_probe_read_kernel(&file, sizeof(file), slots + fd);
	return file;
}
