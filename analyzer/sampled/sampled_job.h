/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The samples (EVENT_SAMPLE) of a sampled recording, by process and thread, and the threads' roles. A sample
 * covers the time from one reading of /proc to the next.
 *
 * - Worker: a process that is its parent's copy (or was spawned by Python's multiprocessing) and shares pipes
 *   with it, beyond the standard three.
 * - Trainer: the main thread of the process whose children are workers. Without workers, that of the process
 *   that used most CPU time. An override wins.
 * - Reader: another thread of the trainer's process that waits at pipes (the pin-memory thread).
 * - Loaders: other threads of the trainer's process that read files, where there are no worker processes.
 *
 * After EVENT_EXIT, the same process ID is another process.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct sampled_thread {
	uint32_t tid;
	const struct event **samples; /* sorted by time; part of the job's array */
	size_t n;
};

struct sampled_process {
	uint32_t tgid, parent_tgid, flags; /* enum sample_process */
	uint64_t first_ns, last_ns;
	uint64_t framework_ns; /* when a training library was first seen in it; 0: never */
	uint64_t process_ns;   /* CPU time while it was sampled */
	struct sampled_thread *threads;
	size_t n_threads;
	const struct sampled_thread *main; /* NULL: never sampled */
	bool is_worker;                    /* a worker of the trainer */
};

struct sampled_job {
	const struct event **events; /* events of all processes, one process after the other */
	struct sampled_thread *thread_array;
	struct sampled_process *processes;
	size_t n_processes, n_workers;
	const struct sampled_process *trainer_process; /* NULL: none */
	const struct sampled_thread *trainer;
	const struct sampled_thread *reader; /* NULL: the trainer itself, or no workers */
	const struct sampled_thread *loader; /* the thread that reads most; NULL: none */
	uint64_t begin_ns, end_ns;           /* limits of all samples */
	uint16_t known;                      /* enum sample_known, and-ed over the trainer's samples */
	size_t n_samples;                    /* number of the trainer's samples */
};

/* Returns the sample that covers this time; NULL: none. */
const struct event *sampled_at(const struct sampled_thread *thread, uint64_t at_ns);

/* Returns true if the thread's Python stack was within a loader's next() at the end of the sample. */
bool sampled_inside(const struct event *sample);

/* Returns true if the thread was certainly asleep from start to end of the sample. */
bool sampled_is_sure(const struct event *sample);

/* Returns the time of a sample in which the thread was neither on a CPU nor runnable. */
uint64_t sampled_sleep_ns(const struct event *sample);
