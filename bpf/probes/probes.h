/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes in the job's libraries. They are set in each process of the job, when it maps a library, and in each
 * that is forked. Other processes that map the same files do not notice.
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

/* members: the recorder's map of the job's threads; libraries: the one in which files that are probed are
 * marked, so that each process that maps one is told of. */
struct probe_set *probes_new(struct bpf_object *object, int members_fd, int libraries_fd);
void probes_free(struct probe_set *probes);

/* Returns true if the process of a pidfd is in the recorder's map of the job's threads. */
bool probes_is_member(int members_fd, int pidfd);

/* Has a process looked at in the next probes_step(): what it has mapped is probed. */
void probes_scan(struct probe_set *probes, pid_t tgid);

/* Does now what probes_step() would do later, for half a second at most. Whoever attaches has time; whoever
 * polls may have little. */
void probes_settle(struct probe_set *probes);

/* Takes EVENT_FORK, EVENT_EXEC, EVENT_EXIT and EVENT_LIBRARY; what they call for is done in the next
 * probes_step(). */
void probes_event(struct probe_set *probes, const struct event *event);

/* Sets the probes that are due, for some milliseconds at most, and makes the notes (GPU_NOTE_*, PHASE_NOTE)
 * about what was probed. Call it at least every 100 ms. n_frequent counts hits of launches and named ranges
 * so far; if they cost more than PROBES_WORK_RATIO of a CPU, their probes are taken off for good. The call
 * that does so returns true. */
bool probes_step(struct probe_set *probes, const struct collector_sink *sink, uint64_t n_frequent,
		 uint64_t now_ns);

/* The event of a named range, with its name's key. */
struct event probes_phase(struct probe_set *probes, const struct phase_record *record);

/* How many functions are probed, each counted once. */
uint64_t probes_count(const struct probe_set *probes);

/* Takes the probes off, and keeps the count of them. */
void probes_detach(struct probe_set *probes);
