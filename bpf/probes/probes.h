/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Probes in the job's libraries. The collector sets them in each process of the job that maps a library, and
 * in each forked one. Other processes that map the same files are not affected.
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

/* members: the recorder's map of the job's threads. libraries: the map in which probed files are marked, so
 * that the recorder reports each process that maps one. */
struct probe_set *probes_new(struct bpf_object *object, int members_fd, int libraries_fd);
void probes_free(struct probe_set *probes);

/* Returns true if the process of a pidfd is in the recorder's map of the job's threads. */
bool probes_is_member(int members_fd, int pidfd);

/* Schedules a process for the next probes_step(), which probes the libraries that it has mapped. */
void probes_scan(struct probe_set *probes, pid_t tgid);

/* Does the work of probes_step() now, for half a second at most. For callers that attach, which have more
 * time than callers that poll. */
void probes_settle(struct probe_set *probes);

/* Receives EVENT_FORK, EVENT_EXEC, EVENT_EXIT and EVENT_LIBRARY; the next probes_step() acts on them. */
void probes_event(struct probe_set *probes, const struct event *event);

/* Sets the probes that are due, for some milliseconds at most, and writes the metadata (GPU_METADATA_*,
 * PHASE_METADATA) about what was probed. Call it at least every 100 ms. n_frequent counts hits of launches
 * and named ranges so far; if they cost more than PROBES_WORK_RATIO of a CPU, probes_step() removes their
 * probes for good and returns true. */
bool probes_step(struct probe_set *probes, const struct collector_sink *sink, uint64_t n_frequent,
		 uint64_t now_ns);

/* Returns the event of a named range, with its name's key. */
struct event probes_phase(struct probe_set *probes, const struct phase_record *record);

/* Removes the probes. */
void probes_detach(struct probe_set *probes);
