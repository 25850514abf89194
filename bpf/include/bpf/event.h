/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * The records that the BPF programs write and the collector passes on, defined once for kernel and user side.
 * Recordings store them, so values are never renumbered, and fields are only added in reserved space.
 *
 * All times are CLOCK_MONOTONIC ns. tid and tgid are host PIDs. One record is 64 bytes. Records of one thread
 * arrive in the order of their end_ns; records of different threads do not.
 */

#ifdef __BPF__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int int32_t;
typedef long long int64_t;
#else
#include <stdint.h>
#endif

enum event_type {
	EVENT_SWITCH = 1,  /* a thread was off-CPU from start to end; written when it resumes */
	EVENT_SYSCALL = 2, /* a system call of the watched set, from entry to exit */
	EVENT_STEP = 3,    /* torch::autograd::Engine::execute was entered: one backward pass */
	EVENT_MARK =
	    4, /* a loader's next() begins or ends: libdiesel's diesel_mark(kind, value), or PyTorch's */
	EVENT_FORK = 5,    /* a thread or process of the job was created */
	EVENT_EXEC = 6,    /* execve succeeded; start_ns == end_ns */
	EVENT_EXIT = 7,    /* a thread of the job ended; carries its totals */
	EVENT_NAME = 8,    /* a thread's comm: at its start, at attach, after a rename */
	EVENT_LIBRARY = 9, /* a file was mapped executable for the first time */
	EVENT_ALIVE = 10,  /* at attach, for every existing thread; payload as EVENT_NAME */
	EVENT_TOTALS = 11, /* written at the end for every living thread; payload as EVENT_EXIT */
	EVENT_CALLS = 12,  /* several quick calls on files in a row: see struct event_calls */
	/* Sums over all threads of the job from start to end, a fraction of a second; tid is 0. */
	EVENT_PAGES = 13,      /* page cache lookups and misses of the job */
	EVENT_PLACE = 14,      /* as EVENT_PAGES, for one of the most used files and folders */
	EVENT_READ_SIZES = 15, /* number of reads by size */
	EVENT_FAULT = 16,      /* a major page fault in a mapped file that is not code, outside of calls */
	EVENT_READS = 17,      /* bytes that reads returned; tid is 0, as in EVENT_PAGES */
	EVENT_STACK = 18, /* a tick of the profile's clock found the thread on its CPU; start_ns == end_ns */
	EVENT_GAP =
	    24, /* only lifetimes and steps were recorded from start to end; written by the recorder */
	EVENT_LOSS =
	    25, /* loss.n records were lost at some time from start to end; written by the collector */
	/* GPU driver calls, and ranges that the program names: */
	EVENT_GPU_WAIT = 20, /* a synchronising call of libcuda, from entry to return */
	EVENT_GPU_WORK = 21, /* start: a synchronisation left nothing queued; end: the next work was queued */
	EVENT_GPU_TOTALS = 22, /* totals of a process at the end of the recording; tid == tgid */
	EVENT_PHASE = 23,      /* a named range (NVTX, USDT) begins or ends */
	/* Without privilege: */
	EVENT_SAMPLE = 29,         /* a thread's activity between two samples of /proc */
	EVENT_SAMPLE_PROCESS = 30, /* a process was first seen, or more of its properties are known */
};

/* Sources and limits of the values in EVENT_SAMPLE. */
enum sample_known {
	SAMPLE_KNOWN_SCHEDSTAT = 1 << 0, /* exec_ns, queue_ns exact; else exec_ns in ticks, no queue_ns */
	SAMPLE_KNOWN_SYSCALL = 1 << 1,   /* wait is derived from the system call of the sleep */
	SAMPLE_KNOWN_WCHAN = 1 << 2,     /* wait is derived from the kernel function of the sleep */
	SAMPLE_KNOWN_IO = 1 << 3,        /* n_reads, read_bytes and written_bytes are exact */
	SAMPLE_KNOWN_PROCESS = 1 << 4,   /* process_ns is valid (main threads only) */
	SAMPLE_CUT = 1 << 5,             /* a counter's increase did not fit in its field */
};

/* The thread's position in its Python code at the end of EVENT_SAMPLE. */
enum sample_place {
	SAMPLE_PLACE_UNKNOWN = 0, /* not read: no Python, no permission, or not the main thread */
	SAMPLE_PLACE_OUTSIDE = 1,
	SAMPLE_PLACE_NEXT = 2,      /* within next() of PyTorch's DataLoader, or torchdata's */
	SAMPLE_PLACE_DIESEL = 3,    /* within next() of DIESEL's loader */
	SAMPLE_PLACE_COMPILING = 4, /* torch.compile or jax.jit compiles */
	SAMPLE_PLACE_COMPUTING = 5, /* in the model, the backward pass or the optimizer */
	SAMPLE_PLACE_IMPORTING = 6, /* imports modules */
	SAMPLE_PLACE_ITERATOR = 7,  /* within next() of a generator, another iterator, or get() of a queue */
};

enum sample_process {
	SAMPLE_PROCESS_SHARES_PIPE = 1 << 0, /* shares a pipe with its parent (descriptor 3 or above) */
	SAMPLE_PROCESS_COPY = 1 << 1,        /* forked: runs its parent's command line */
	SAMPLE_PROCESS_SPAWNED = 1 << 2,     /* started by Python's multiprocessing without a fork */
	SAMPLE_PROCESS_HIDDEN = 1 << 3,      /* no permission to read its descriptors */
};

#define EVENT_TYPE_LIMIT 32 /* above every enum event_type, including those of later versions */

/* Kind of wake-up: the context of the CPU that made the thread runnable. */
enum waker_context {
	WAKER_TASK = 0,    /* waker_tid is a real waker */
	WAKER_HARDIRQ = 1, /* interrupt context; waker_tid is only the interrupted thread */
	WAKER_SOFTIRQ = 2, /* waker_detail: softirq number (3 NET_RX, 4 BLOCK, 1 TIMER) */
	WAKER_TIMER = 3,   /* local timer interrupt */
	WAKER_NONE = 255,  /* no wake-up was seen: preempted, or the sleep began before the recording */
};

enum event_flag {
	EVENT_FLAG_PREEMPTED = 1 << 0,  /* EVENT_SWITCH: left the CPU while runnable */
	EVENT_FLAG_IOWAIT = 1 << 1,     /* EVENT_SWITCH: in_iowait was set */
	EVENT_FLAG_IN_SYSCALL = 1 << 2, /* EVENT_SWITCH: syscall_nr holds the call it slept in */
	EVENT_FLAG_CLIPPED = 1 << 3,    /* began before the recording; start_ns is the recording's start */
	/* EVENT_SWITCH: slept in a page fault that was outside of system calls and not for code */
	EVENT_FLAG_MAJOR_FAULT = 1 << 4,
	/* EVENT_SWITCH: slept until some or all written data was on storage: in fsync, or in a write that the
	 * kernel throttled because of too much dirty data. Checkpoints wait in this way for writeback. */
	EVENT_FLAG_WRITEBACK = 1 << 5,
	EVENT_FLAG_FOLDER = 1 << 6,    /* EVENT_PLACE: the sums cover all files directly in this folder */
	EVENT_FLAG_NEIGHBOUR = 1 << 7, /* EVENT_SWITCH: its core had just run a thread outside the job */
	EVENT_FLAG_CODE = 1 << 8,      /* EVENT_SWITCH: slept in a page fault of its program or a library */
};

/* File types as in st_mode >> 12. */
enum event_file_type {
	EVENT_FILE_NONE = 0,
	EVENT_FILE_FIFO = 1,
	EVENT_FILE_CHR = 2,
	EVENT_FILE_DIR = 4,
	EVENT_FILE_BLK = 6,
	EVENT_FILE_REG = 8,
	EVENT_FILE_LNK = 10,
	EVENT_FILE_SOCK = 12,
};

/* Source of a file's or socket's bytes: its file system or address family. */
enum event_source {
	SOURCE_UNKNOWN = 0,
	SOURCE_STORAGE = 1, /* a file system on a local disk */
	SOURCE_MEMORY = 2,  /* tmpfs, shared memory, proc, sys: bytes are in memory already */
	SOURCE_FUSE = 3,    /* another process on this machine serves it */
	SOURCE_NETWORK = 4, /* NFS, SMB, Ceph, Lustre, 9p, ...; sockets of IPv4 and IPv6 */
	SOURCE_LOCAL = 5,   /* sockets within this machine */
};

/* Kinds of EVENT_MARK. The first four equal enum diesel_mark_kind of client/diesel.h, which this folder
 * cannot include: daemon/sense/sensor_tally.c asserts that. */
enum mark_kind {
	MARK_NEXT_BEGIN = 1, /* the loader's next() was entered */
	MARK_NEXT_END = 2,   /* the loader's next() returned */
	MARK_WAIT_BEGIN = 3, /* no batch is ready: about to sleep */
	MARK_WAIT_END = 4,   /* value: enum mark_cause */
	/* next() of PyTorch's DataLoader, which ends without a batch at the end of an epoch; value: enum
	 * mark_batch */
	MARK_BATCH_BEGIN = 5,
	MARK_BATCH_END = 6,
};

enum mark_batch {
	MARK_BATCH_INLINE = 1,  /* num_workers=0: the batch is made within next() */
	MARK_BATCH_WORKERS = 2, /* batches come from worker processes */
};

enum mark_cause {                       /* enum diesel_mark_cause */
		  MARK_CAUSE_FETCH = 1, /* chunk reads from storage delayed the batch */
		  MARK_CAUSE_PREP = 2, /* reads were done; verifying, copying or decoding delayed the batch */
		  MARK_CAUSE_PEERS = 3,   /* chunk reads from other nodes of the job delayed the batch */
		  MARK_CAUSE_STAGING = 4, /* chunk reads from the node's staging disk delayed the batch */
};

static inline int mark_cause_fetches(uint64_t cause)
{
	return cause == MARK_CAUSE_FETCH || cause == MARK_CAUSE_PEERS || cause == MARK_CAUSE_STAGING;
}

/* EVENT_GPU_*: see bpf/gpu.h for what is probed. */
enum gpu_flag {
	GPU_FLAG_DRAINED = 1 << 0, /* EVENT_GPU_WAIT: the process had no work queued when it returned */
};

/* EVENT_PHASE. Ranges nest within a thread; an end closes the innermost open one. */
enum phase_kind {
	PHASE_BEGIN = 1,
	PHASE_END = 2,
};

struct event_switch {
	uint64_t waking_ns; /* when it became runnable; 0: it was runnable all the time */
	uint64_t exec_ns;   /* its CPU time so far (se.sum_exec_runtime) */
	uint32_t waker_tid; /* valid only with WAKER_TASK */
	uint16_t state;     /* task state bits at the switch: 1 S, 2 D, 0 runnable; a set */
	uint16_t syscall_nr;
	uint8_t waker_context; /* enum waker_context */
	uint8_t waker_detail;
	uint8_t reserved[6];
};

struct event_call {
	int64_t result;
	uint64_t inode;    /* inode of the fd's file; futex: address; 0: none */
	uint64_t argument; /* open: flags; read, write: count; mmap: length; poll: number of fds */
	int32_t fd;        /* poll of one fd: that fd; open: the directory fd */
	uint16_t nr;
	uint8_t file_type; /* enum event_file_type */
	uint8_t source;    /* enum event_source */
};

/*
 * The interval from the start of the first call to the end of the last. The thread kept its CPU throughout:
 * no call slept or took long, and the thread computed for at most 0.1 ms between two calls. busy_ns is the
 * time in the calls; the thread computed in the rest of the interval. The calls are reads, opens, look-ups
 * and closes of files that cannot be written through the descriptor.
 */
struct event_calls {
	uint64_t inode; /* inode of the last call's file */
	uint32_t bytes; /* bytes that the reads returned */
	uint32_t busy_ns;
	uint16_t n_calls; /* 2 or more */
	uint16_t n_reads; /* completed reads */
	uint16_t n_opens; /* successful opens */
	uint8_t file_type;
	uint8_t source; /* source of the last call's file */
	uint64_t reserved;
};

struct event_pages {
	uint32_t accessed_pages; /* pages that reads and faults looked up in the page cache */
	uint32_t missed_pages;   /* pages read from storage, read-ahead included */
	uint32_t n_minor_faults; /* faults whose page was already in memory */
	uint32_t n_major_faults;
	uint32_t reserved[2];
	uint64_t fault_ns; /* time in major faults of files */
};

struct event_place {
	uint64_t inode;
	uint32_t device; /* kernel dev_t */
	uint32_t accessed_pages;
	uint32_t missed_pages;
	uint32_t n_reads;
	uint32_t used_kib;
	uint32_t direct_kib; /* read past the page cache (O_DIRECT); part of used_kib */
};

struct event_sizes {
	/* reads of 2^(first + k) to 2^(first + k + 1) - 1 bytes; class 0 includes 0 bytes */
	uint32_t n[7];
	uint32_t first;
};

struct event_fault {
	uint64_t inode;
	uint64_t page;        /* page index in the file */
	uint32_t device;      /* kernel dev_t */
	uint32_t added_pages; /* pages read for the fault, including read-ahead */
	uint32_t sleep_ns;
	uint16_t n_sleeps;
	uint16_t n_wakeups;
};

struct event_reads {
	uint64_t used_bytes;    /* bytes read from files, with or without the page cache; includes io_uring */
	uint64_t direct_bytes;  /* part of used_bytes that was read past the page cache (O_DIRECT) */
	uint64_t network_bytes; /* bytes received from IPv4 and IPv6 sockets; not in used_bytes */
	uint32_t n_reads;       /* completed reads of files */
	uint32_t reserved;
};

/* A loader's mark, or a phase. */
struct event_mark {
	uint64_t value; /* start of a phase: key of the metadata "phase" with its name; end: 0 */
	uint64_t reserved[2];
	uint32_t kind; /* enum mark_kind or, in EVENT_PHASE, enum phase_kind */
	uint32_t reserved2;
};

struct event_fork {
	uint32_t child_tid;
	uint32_t child_tgid; /* == tgid: a thread; else a process */
	uint64_t clone_flags;
	uint64_t child_start_boottime_ns; /* unique together with the pid */
	uint64_t reserved;
};

struct event_exit {
	uint64_t exec_ns;  /* CPU time */
	uint64_t queue_ns; /* time runnable without a CPU */
	uint64_t sleep_ns; /* interruptible */
	uint64_t block_ns; /* uninterruptible */
};

struct event_name {
	char comm[16];
	uint64_t start_boottime_ns;
	uint32_t ns_tid; /* thread id in its innermost PID namespace */
	uint32_t parent_tgid;
};

struct event_library {
	uint64_t inode;
	uint64_t device; /* kernel dev_t */
	char name[16];   /* file name without its folder, truncated */
};

struct event_loss {
	uint64_t n;
	uint64_t reserved[3];
};

struct event_sample {
	uint32_t exec_ns;    /* CPU time from start to end */
	uint32_t queue_ns;   /* time runnable without a CPU */
	uint32_t process_ns; /* CPU time of all threads of its process */
	uint32_t read_bytes, written_bytes;
	uint32_t inode;   /* inode of the pipe or socket that the thread waits for; 0: not known */
	uint16_t n_reads; /* read calls */
	uint16_t known;   /* enum sample_known, or-ed */
	uint8_t state;    /* state at the end, as in /proc: R S D Z ... */
	uint8_t wait;     /* wait at the end: enum proc_wait of lib/proc_task.h */
	uint8_t n;        /* number of samples after start, up to end */
	uint8_t place;    /* place at the end: enum sample_place */
};

struct event_process {
	uint64_t start_boottime_ns;
	uint64_t exec_ns; /* CPU time of all threads of the process so far */
	uint32_t parent_tgid;
	uint32_t flags; /* enum sample_process, or-ed */
	uint64_t reserved;
};

struct event_gpu {
	uint64_t n_launches; /* kernel and graph launches of the process that probes counted so far; counting
			      * stops when they become too frequent */
	uint64_t n_copies;   /* copies and fills counted so far, with the same limit */
	uint64_t stream;     /* CUstream; 0: the default one */
	uint16_t function;   /* index, see bpf/gpu.h */
	uint16_t gpu_flags;  /* enum gpu_flag */
	uint32_t reserved;
};

struct event_gpu_totals {
	uint64_t n_launches, n_copies;
	uint64_t n_waits;
	uint64_t wait_ns; /* time of all threads in synchronising calls */
};

struct event_stack {
	uint64_t native; /* key of the metadata "stack" of the native frames; 0: not known */
	uint64_t python; /* key of the metadata "stack" of the Python frames; 0: none */
	uint16_t syscall_nr;
	uint8_t in_kernel; /* 1: in the call syscall_nr, or (0xffff) in a page fault or an interrupt */
	uint8_t reserved[13];
};

struct event {
	uint64_t start_ns;
	uint64_t end_ns;
	uint32_t tid;
	uint32_t tgid;
	uint16_t type;  /* enum event_type */
	uint16_t flags; /* enum event_flag */
	uint32_t cpu;   /* the CPU that wrote the record */
	union {
		struct event_switch sw;
		struct event_call call;
		struct event_calls calls;
		struct event_pages pages;
		struct event_place place;
		struct event_sizes sizes;
		struct event_fault fault;
		struct event_reads reads;
		struct event_mark mark;
		struct event_fork fork;
		struct event_exit exit;
		struct event_name name;
		struct event_library library;
		struct event_loss loss;
		struct event_sample sample;
		struct event_process process;
		struct event_gpu gpu;
		struct event_gpu_totals gpu_totals;
		struct event_mark phase;
		struct event_stack stack;
		uint64_t payload[4];
	};
};

#ifndef __BPF__
/* Kind of the metadata with the path of an EVENT_PLACE's file or folder, without a NUL at the end. */
#define METADATA_PATH "path"

struct places_path {
	uint64_t inode;
	uint32_t device; /* kernel dev_t */
	uint32_t folder; /* 1: the path is a folder's */
};

_Static_assert(sizeof(struct places_path) == 16, "stored");
_Static_assert(sizeof(struct event) == 64, "recordings and BPF programs use this layout");
#endif
