/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * Watches how PyTorch's DataLoaders hand out work: a trainer writes the indices of a batch to a worker's
 * pipe, the worker reads them, and opens files. All trainers of the machine are found by what they write;
 * only of those that were asked for is more recorded.
 *
 * Reading other processes' pipes takes CAP_BPF and CAP_PERFMON to begin with; the other functions take no
 * privilege.
 */

#ifdef __BPF__
#include "bpf/event.h"
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

enum index_record_type {
	INDEX_FOUND = 1, /* a trainer that was not asked for wrote indices; at most one a second and pipe */
	INDEX_WRITE = 2, /* a message of indices; bytes: the pickle */
	INDEX_READ = 3,  /* a worker has read one; bytes: the pickle's first INDEX_HEAD_BYTES */
	INDEX_OPEN = 4, /* a worker opens a regular file for reading; bytes: the name it gave, with the NUL */
};

#define INDEX_HEAD_BYTES 64
#define INDEX_MESSAGE_BYTES                                                                                  \
	32704 /* a longer message is not seen: it and its record fit a per-CPU map's value */
#define INDEX_PATH_BYTES   1024
#define INDEX_TRAINERS_MAX 64
/* Of records of one trainer a second, beyond which they are left out. Opening a file takes some 120. */
#define INDEX_BYTES_MAX (4u << 20)

/* Processes that forked lately, kept in a ring. */
#define INDEX_FORKS 64

/*
 * at_ns is of CLOCK_MONOTONIC. exec_ns is the thread's CPU time as of start_ns, which is a clock of this CPU
 * that goes on with it; queue_ns its time without a CPU though runnable. While it runs, start_ns - exec_ns
 * stands still: the scheduler's own bookkeeping, which lags behind by up to a tick, does not matter.
 */
struct index_record {
	uint64_t at_ns, exec_ns, queue_ns, start_ns;
	uint32_t n_sleeps; /* times that the thread gave up its CPU by itself */
	uint32_t cpu;
	uint32_t trainer; /* process that writes to the pipe */
	uint32_t uid;     /* the thread's real user and group, now */
	uint32_t pipe;    /* inode */
	uint32_t length;  /* WRITE, READ: of the whole pickle */
	uint16_t type;
	uint16_t bytes; /* that follow */
	uint32_t gid;
};

/* A trainer that is watched, shared with the programs. */
struct index_trainer {
	uint32_t tgid;    /* 0: none */
	uint32_t n_bytes; /* since window_ns */
	uint64_t window_ns;
	uint64_t n_left_out;
};

struct index_fork {
	uint32_t parent, child; /* tgid */
};

#ifndef __BPF__
_Static_assert(sizeof(struct index_record) == 64, "shared with the kernel side");

struct error;
struct index_watch;

/* If the kernel or the privilege does not allow it, the line in err says what is missing. */
int index_watch_open(struct index_watch **ret, struct error *err);
void index_watch_close(struct index_watch *w);

/* How much is looked at. All but forks is paid for by each system call of the machine. */
enum index_attention {
	INDEX_FORKS_ONLY,
	INDEX_TRAINERS, /* INDEX_FOUND is said */
	INDEX_ALL,      /* of the trainers that are wanted, too */
};

/* Forks only is how it begins. 0 or -errno. */
int index_watch_attend(struct index_watch *w, enum index_attention wanted);

/* Hands on the forks since it was last called: at most the last INDEX_FORKS. */
void index_watch_forks(struct index_watch *w, void (*forked)(void *user, uint32_t parent, uint32_t child),
		       void *user);

/* Becomes readable when there are records of batches. */
int index_watch_fd(const struct index_watch *w);

/* Hands on all records there are. 0 or -errno. */
int index_watch_take(struct index_watch *w,
		     void (*record)(void *user, const struct index_record *r, const void *bytes), void *user);

/* Begins or ends recording of a trainer. -EAGAIN: INDEX_TRAINERS_MAX are watched. */
int index_watch_trainer(struct index_watch *w, uint32_t tgid, bool wanted);

/* Records that found no room, or were beyond their trainer's limit. */
uint64_t index_watch_lost(const struct index_watch *w);
#endif
