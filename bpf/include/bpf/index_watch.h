/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
#pragma once

/*
 * Watches how PyTorch's DataLoaders hand out work: a trainer writes the indices of a batch to a worker's
 * pipe, the worker reads them, and opens files. The watch finds all trainers of the machine by their writes,
 * and records more only for those that the caller asked for.
 *
 * index_watch_open() needs CAP_BPF and CAP_PERFMON; the other functions need no privilege.
 */

#ifdef __BPF__
#include "bpf/event.h"
#else
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif

enum index_record_type {
	INDEX_FOUND = 1, /* an unwatched trainer wrote indices; at most one record per second and pipe */
	INDEX_WRITE = 2, /* a trainer wrote indices; bytes: the pickle */
	INDEX_READ = 3,  /* a worker read indices; bytes: the pickle's first INDEX_HEAD_BYTES */
	INDEX_OPEN = 4,  /* a worker opens a regular file for reading; bytes: the path as given, with NUL */
};

#define INDEX_HEAD_BYTES 64
#define INDEX_MESSAGE_BYTES                                                                                  \
	32704 /* longer messages are ignored: a message and its record must fit a per-CPU map's value */
#define INDEX_PATH_BYTES   1024
#define INDEX_TRAINERS_MAX 64
/* Maximum bytes per second of one trainer's records; further records are dropped. The record of an opened
 * file takes about 120 bytes. */
#define INDEX_BYTES_MAX (4u << 20)

/* Size of the ring of the latest forks. */
#define INDEX_FORKS 64

/*
 * at_ns is CLOCK_MONOTONIC. exec_ns is the thread's CPU time at start_ns, a time of this CPU's scheduler
 * clock; queue_ns is its time runnable without a CPU. While the thread runs, start_ns - exec_ns stays
 * constant. So it does not matter that the scheduler's accounting lags by up to a tick.
 */
struct index_record {
	uint64_t at_ns, exec_ns, queue_ns, start_ns;
	uint32_t n_sleeps; /* voluntary context switches of the thread */
	uint32_t cpu;
	uint32_t trainer; /* tgid of the process that writes to the pipe */
	uint32_t uid;     /* the thread's real user id */
	uint32_t pipe;    /* inode */
	uint32_t length;  /* WRITE, READ: bytes of the whole pickle */
	uint16_t type;
	uint16_t bytes; /* bytes that follow the record */
	uint32_t gid;
};

/* A trainer that is watched, shared with the programs. */
struct index_trainer {
	uint32_t tgid;    /* 0: none */
	uint32_t n_bytes; /* bytes recorded since window_ns */
	uint64_t window_ns;
	uint64_t n_left_out;
};

struct index_fork {
	uint32_t parent, child; /* tgids */
};

#ifndef __BPF__
_Static_assert(sizeof(struct index_record) == 64, "the BPF programs use this layout");

struct error;
struct index_watch;

/* Loads the programs, which only watch forks at first. If the kernel or missing privileges prevent this,
 * err names the reason. */
int index_watch_open(struct index_watch **ret, struct error *err);

/* Extent of the watch. All but forks costs time in each system call of the machine. */
enum index_attention {
	INDEX_FORKS_ONLY,
	INDEX_TRAINERS, /* also reports trainers (INDEX_FOUND) */
	INDEX_ALL,      /* also records the trainers chosen by index_watch_trainer() */
};

/* Sets the events to watch; initially INDEX_FORKS_ONLY. 0 or -errno. */
int index_watch_attend(struct index_watch *w, enum index_attention wanted);

/* Passes on the forks since the last call: at most the latest INDEX_FORKS. */
void index_watch_forks(struct index_watch *w, void (*forked)(void *user, uint32_t parent, uint32_t child),
		       void *user);

/* Returns a descriptor that is readable while records of batches are pending. */
int index_watch_fd(const struct index_watch *w);

/* Passes on all pending records. 0 or -errno. */
int index_watch_take(struct index_watch *w,
		     void (*record)(void *user, const struct index_record *r, const void *bytes), void *user);

/* Starts or stops recording a trainer. -EAGAIN: INDEX_TRAINERS_MAX are watched already. */
int index_watch_trainer(struct index_watch *w, uint32_t tgid, bool wanted);

/* Returns the number of records dropped because the ring was full, or the trainer's limit was reached. */
uint64_t index_watch_lost(const struct index_watch *w);
#endif
