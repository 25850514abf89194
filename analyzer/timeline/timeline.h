/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The state of every thread of the job at any time, built from events in any order.
 *
 * A thread is a task's life: a reused tid is another thread, which begins at its fork. Intervals off the CPU
 * and system calls are sorted and do not overlap within a thread. Records that contradict this are cut or
 * dropped, and counted, so hostile input cannot break a query. Between two intervals off the CPU a thread has
 * a core; before its first and after its last record its state is unknown.
 *
 * Lookups are binary searches. Nothing is changed after timeline_build(): queries are thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"
#include "analyzer/base/interval.h"
#include "lib/error.h"

#define TIMELINE_UNKNOWN 0xffff /* state of a thread in a gap of the recording */

/* Interval off the CPU. The thread is runnable from waking_ns on (begin_ns: it never slept; end_ns: no
 * wake-up was seen). */
struct timeline_off {
	uint64_t begin_ns, waking_ns, end_ns;
	uint64_t exec_ns;   /* CPU time of the thread's life so far */
	uint32_t waker_tid; /* 0 unless a task woke the thread: wake-ups by interrupts prove nothing */
	uint16_t state;     /* 0: runnable all the time */
	uint16_t flags;     /* enum event_flag */
	uint16_t syscall_nr;
};

enum call_kind {
	CALL_OTHER,
	CALL_READ,
	CALL_WRITE,
	CALL_OPEN,
	CALL_CLOSE,
	CALL_MAP,
	CALL_STAT,
	CALL_LIST,
	CALL_POLL,
	CALL_WAIT_ANY,
	CALL_SOCKET,
	CALL_SYNC,
	CALL_RENAME,
	CALL_CHILD,
	CALL_RING,
	CALL_FUTEX,
	CALL_NAP,
	CALL_GROUP,
	CALL_FAULT, /* no call: a major page fault in a mapped file */
};

/* One system call, or a group of quick ones on files (EVENT_CALLS). In a group the thread had its CPU from
 * begin to end, and was in calls for busy_ns of that; in the rest it computed. */
struct timeline_call {
	uint64_t begin_ns, end_ns;
	uint64_t busy_ns;  /* time in calls; single call: its whole duration */
	int64_t result;    /* group: bytes that reads returned; fault: pages read */
	uint64_t inode;    /* group: inode of the last call */
	uint64_t argument; /* fault: index of the page */
	enum call_kind kind;
	int32_t fd;
	uint16_t nr;
	uint16_t flags;   /* enum event_flag */
	uint16_t n_opens; /* group: files opened */
	uint16_t n_reads; /* group: reads completed */
	uint8_t file_type;
	uint8_t source;               /* enum event_source */
	uint16_t n_sleeps, n_wakeups; /* fault */
};

/* A synchronising call into the GPU driver. */
struct timeline_gpu_wait {
	uint64_t begin_ns, end_ns;
	uint64_t n_launches; /* launches of the thread's process so far */
	uint16_t function;   /* index, see bpf/gpu.h */
};

struct timeline_mark {
	uint64_t at_ns, value;
	uint32_t kind; /* enum mark_kind */
};

struct timeline_thread {
	uint32_t tid, tgid, parent_tgid, creator_tid;
	uint32_t ns_tid;            /* ID in the innermost PID namespace; 0: not known */
	uint64_t process;           /* equal for all threads of a process: a tgid can be used again */
	uint64_t born_ns;           /* time of its fork; 0: before the recording */
	uint64_t exit_ns;           /* 0: not seen */
	uint64_t first_ns, last_ns; /* limits of the time in which it is known */
	char comm[16];              /* the last name, terminated */
	struct timeline_off *offs;
	struct timeline_call *calls;
	struct timeline_mark *marks;
	uint64_t *steps; /* backward passes */
	struct timeline_gpu_wait *gpu_waits;
	bool uses_network; /* one of its calls was on an IPv4 or IPv6 socket */
	size_t n_offs, n_calls, n_marks, n_steps, n_gpu_waits;
};

struct timeline {
	struct timeline_thread *threads; /* sorted by tid, then birth */
	size_t n_threads;
	uint64_t begin_ns, end_ns; /* limits of all records */
	size_t n_malformed;
	struct interval_list gaps; /* gaps of the recording, in which only lives and steps are known; tidy */
	/* backing arrays of all threads */
	struct timeline_off *offs;
	struct timeline_call *calls;
	struct timeline_mark *marks;
	uint64_t *steps;
	struct timeline_gpu_wait *gpu_waits;
};

enum timeline_state {
	STATE_UNKNOWN,
	STATE_CPU,
	STATE_QUEUE, /* runnable without a core */
	STATE_SLEEP, /* interruptible */
	STATE_BLOCK, /* uninterruptible */
};

struct timeline_piece {
	uint64_t begin_ns, end_ns;
	enum timeline_state state;
	const struct timeline_off *off; /* NULL on the CPU and where unknown */
};

struct timeline_account {
	uint64_t cpu_ns, queue_ns, sleep_ns, block_ns, unknown_ns; /* sum to the interval */
	uint64_t exec_ns; /* part of cpu_ns that the thread really ran: no steal time or interrupts */
};

/* -ENOMEM only. */
int timeline_build(const struct event *events, size_t n_events, struct timeline **ret_timeline,
		   struct error *err);
struct timeline *timeline_free(struct timeline *timeline);

static inline bool timeline_same_process(const struct timeline_thread *a, const struct timeline_thread *b)
{
	return a->process == b->process;
}

/* Returns the thread that had this tid at that time; NULL: none. */
const struct timeline_thread *timeline_find(const struct timeline *timeline, uint32_t tid, uint64_t at_ns);

/* Returns the thread that ended this sleep; NULL: none of the job, or off is NULL. */
const struct timeline_thread *timeline_waker(const struct timeline *timeline, const struct timeline_off *off);

/* Returns the thread's state from at_ns on as one piece, cut at limit_ns. at_ns < limit_ns. */
struct timeline_piece timeline_piece_at(const struct timeline_thread *thread, uint64_t at_ns,
					uint64_t limit_ns);

struct timeline_account timeline_account(const struct timeline_thread *thread, uint64_t begin_ns,
					 uint64_t end_ns);

/* Returns the CPU time of a thread between two things that belong together if it is short; 0 if they overlap.
 * Unknown time counts as CPU time: nobody knows whether what lies on both sides of a gap belongs together. */
uint64_t timeline_cpu_between(const struct timeline_thread *thread, uint64_t begin_ns, uint64_t end_ns);

/* Returns the time at which the thread has used cpu_ns of CPU time after at_ns; at most limit_ns. Waits
 * for a core delay it. */
uint64_t timeline_after_cpu(const struct timeline_thread *thread, uint64_t at_ns, uint64_t cpu_ns,
			    uint64_t limit_ns);

/* Returns the index of the first call that ends after at_ns; n_calls: none. */
size_t timeline_call_from(const struct timeline_thread *thread, uint64_t at_ns);

/* Returns the ns of [begin_ns, end_ns) in the call; for a group, in proportion to its busy_ns. */
uint64_t timeline_call_busy(const struct timeline_call *call, uint64_t begin_ns, uint64_t end_ns);

/* Returns the thread's call at that time (including both ends); NULL: none. */
const struct timeline_call *timeline_call_at(const struct timeline_thread *thread, uint64_t at_ns);

/* Returns true if the thread slept uninterruptibly, as in disk I/O and for locks of the kernel. */
static inline bool timeline_off_blocks(const struct timeline_off *off)
{
	return off->state & 2;
}

/* Returns true if the thread slept in a page fault on a mapped file, and the fault has no record of its own.
 */
bool timeline_off_is_fault(const struct timeline_thread *thread, const struct timeline_off *off);

/* Returns the last interval off the CPU that begins before at_ns; NULL: none. */
const struct timeline_off *timeline_off_before(const struct timeline_thread *thread, uint64_t at_ns);
