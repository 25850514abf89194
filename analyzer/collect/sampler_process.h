/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One process of a sampled job: its relation to its parent, and its sampled threads. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"
#include "lib/proc_task.h"

struct sampler_place;
struct sampler_process;
struct sampler_thread;

/* parent: NULL for the first one; used during the call only. -ESRCH, -ENOENT: the process ended. */
int sampler_process_new(const char *root, pid_t pid, const struct sampler_process *parent,
			struct sampler_process **ret_process);

/* NULL is fine. */
void sampler_process_free(struct sampler_process *process);

pid_t sampler_process_pid(const struct sampler_process *process);
/* Returns the number of threads that are sampled. */
size_t sampler_process_n_threads(const struct sampler_process *process);

/* Emits EVENT_ALIVE and EVENT_SAMPLE_PROCESS if their contents are new or changed. */
void sampler_process_introduce(struct sampler_process *process, uint64_t now_ns,
			       const struct collector_sink *sink);

/* Searches for threads worth sampling, and adds at most `space` of them. -ESRCH: the process ended, or
 * another process has its PID. */
int sampler_process_scan(struct sampler_process *process, size_t space, uint64_t now_ns,
			 const struct collector_sink *sink);

/* Samples the process's threads once. -ESRCH: the process ended. */
int sampler_process_sample(struct sampler_process *process, uint64_t now_ns,
			   const struct collector_sink *sink);

/* Passes the samples that were held back to the sink, followed by an EVENT_EXIT or EVENT_TOTALS (`type`). */
void sampler_process_end(struct sampler_process *process, uint16_t type, uint64_t now_ns,
			 const struct collector_sink *sink);

/* Opens the thread's files. root is borrowed. -ESRCH, -ENOENT: the thread has ended; -EACCES: none of the
 * files is readable. */
int sampler_thread_open(const char *root, pid_t tgid, pid_t tid, uint64_t now_ns,
			struct sampler_thread **ret_thread);

/* Samples the thread once. place: the place reader of its process, for the main thread; NULL: none.
 * -ESRCH: the thread has ended; samples that were held back are emitted. */
int sampler_thread_sample(struct sampler_thread *thread, struct sampler_place *place, uint64_t now_ns,
			  const struct collector_sink *sink);

/* NULL is fine. */
void sampler_thread_close(struct sampler_thread *thread);

/* sampler_wait.c: returns the kind of wait of a thread that sleeps in this call. *ret_inode: inode of the
 * pipe or socket, else 0. */
enum proc_wait sampler_wait(const char *root, pid_t tgid, const struct proc_syscall *call,
			    uint32_t *ret_inode);
