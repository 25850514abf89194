/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One thread that is sampled repeatedly. Its files of /proc stay open: they show this thread, and never a
 * later one with the same ID. A thread that slept at the last sample and has not run since is still in that
 * sleep. Its counters suffice to show this, and such samples are emitted as one event.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"
#include "lib/proc_task.h"

struct sampler_place;
struct sampler_thread;

/* Opens the thread's files. root is borrowed. -ESRCH, -ENOENT: the thread has ended; -EACCES: none of the
 * files is readable. */
int sampler_thread_open(const char *root, pid_t tgid, pid_t tid, uint64_t now_ns,
			struct sampler_thread **ret_thread);

/* Samples the thread once. place: the place reader of its process, for the main thread; NULL: none.
 * -ESRCH: the thread has ended; samples that were held back are emitted. */
int sampler_thread_sample(struct sampler_thread *thread, struct sampler_place *place, uint64_t now_ns,
			  const struct collector_sink *sink);

/* Passes the samples that were held back to the sink. */
void sampler_thread_flush(struct sampler_thread *thread, const struct collector_sink *sink);

pid_t sampler_thread_tid(const struct sampler_thread *thread);

/* Return totals over the thread's life, as far as known; for a main thread, those of its process. */
uint64_t sampler_thread_exec_ns(const struct sampler_thread *thread);
uint64_t sampler_thread_queue_ns(const struct sampler_thread *thread);

/* NULL is fine. */
void sampler_thread_close(struct sampler_thread *thread);

/* sampler_wait.c: returns the kind of wait of a thread that sleeps in this call. *ret_inode: inode of the
 * pipe or socket, else 0. */
enum proc_wait sampler_wait(const char *root, pid_t tgid, const struct proc_syscall *call,
			    uint32_t *ret_inode);
