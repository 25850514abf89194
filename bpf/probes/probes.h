/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes in the job's libraries. A probe belongs to a file (device and inode), not to a process, and is set
 * once however many processes map the file; the recorder counts only threads of the job.
 *
 * A library is known by its file name, or, because it may have been copied or renamed, by the name it was
 * linked as. For the latter, every file that the job maps executable is opened once.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROBES_WORK_RATIO 0.02

struct bpf_object;
struct collector_sink;
struct event;
struct phase_record;
struct probe_set;

struct probe_set *probes_new(struct bpf_object *object);
void probes_free(struct probe_set *probes);

/* Looks at what a process has mapped, through the process's own root directory. A process that is gone has
 * nothing to probe; failures are logged at debug level. */
void probes_scan(struct probe_set *probes, pid_t tgid);

/* Takes EVENT_LIBRARY and EVENT_EXEC. A new file is looked at now, or, if its name says nothing, in the next
 * probes_step(). */
void probes_event(struct probe_set *probes, const struct event *event);

/* Makes the scans that are due, and the notes (GPU_NOTE_*, PHASE_NOTE) about what was probed. Call it at
 * least every 100 ms. n_frequent counts hits of launches and named ranges so far; if they cost more than
 * PROBES_WORK_RATIO of a CPU, their probes are taken off for good. The call that does so returns true. */
bool probes_step(struct probe_set *probes, const struct collector_sink *sink, uint64_t n_frequent,
		 uint64_t now_ns);

/* The event of a named range, with its name's key. */
struct event probes_phase(struct probe_set *probes, const struct phase_record *record);

uint64_t probes_count(const struct probe_set *probes);

/* Takes the probes off, and keeps the count of them. */
void probes_detach(struct probe_set *probes);
