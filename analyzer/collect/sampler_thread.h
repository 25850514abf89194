/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One thread that is looked at again and again. Its files of /proc stay open: they show this thread, and
 * never another one that gets its number later. A thread that slept before and has not run since is in the
 * same sleep: its counters alone show this, and such looks are handed on as one event.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/collector.h"
#include "lib/proc_task.h"

struct sampler_place;
struct sampler_thread;

/* -ESRCH, -ENOENT: it has ended. -EACCES: nothing of it can be read. root is borrowed. */
int sampler_thread_open(const char *root, pid_t tgid, pid_t tid, uint64_t now_ns,
			struct sampler_thread **ret_thread);

/* One look. place: that of its process, for the main thread; NULL: not known. -ESRCH: it has ended; what was
 * held back is handed on. */
int sampler_thread_look(struct sampler_thread *thread, struct sampler_place *place, uint64_t now_ns,
			const struct collector_sink *sink);

/* Hands on what is held back. */
void sampler_thread_flush(struct sampler_thread *thread, const struct collector_sink *sink);

pid_t sampler_thread_tid(const struct sampler_thread *thread);

/* Over its life so far, as far as known; for a main thread, that of its process. */
uint64_t sampler_thread_exec_ns(const struct sampler_thread *thread);
uint64_t sampler_thread_queue_ns(const struct sampler_thread *thread);

/* NULL is fine. */
void sampler_thread_close(struct sampler_thread *thread);

/* sampler_wait.c: what a thread that sleeps in this call waits for. *ret_inode: of the pipe or socket,
 * else 0. */
enum proc_wait sampler_wait(const char *root, pid_t tgid, const struct proc_syscall *call,
			    uint32_t *ret_inode);
