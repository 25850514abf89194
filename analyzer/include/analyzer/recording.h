/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recording: one SQLite file with the events of bpf/event.h and facts about how they were recorded. Once
 * closed, it is a single file. A truncated recording is readable up to the damage.
 *
 * Format: application_id 0x444c5331 ("DLS1"), user_version RECORDING_VERSION;
 *
 *   info(key TEXT PRIMARY KEY, value TEXT)
 *   events(id INTEGER PRIMARY KEY, slice, min_end_ns, max_end_ns, n, records BLOB): n events, sorted by
 *   end_ns and packed (recording_codec.h); blocks overlap in time only a little, because they are written
 *   while the events come. slice 0: events of the whole recording (lives of threads, steps, gaps);
 *   slice 1, 2, ...: detail, which a long recording has only in parts (EVENT_GAP marks the others)
 *   notes(kind TEXT, key INTEGER, value BLOB): data that does not fit an event: names, paths, stacks. Since
 *   version 2
 *
 * A recording belongs to one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct error;
struct recording;
struct recording_cursor;

#define RECORDING_VERSION 2

/* Keys of info. Times are ns, sizes bytes, both decimal. */
#define RECORDING_COMMAND          "command"   /* the command as typed, or the command line of the process */
#define RECORDING_ROOT_TGID        "root_tgid" /* the job's first process */
#define RECORDING_ROOTS            "roots"     /* all root processes, separated by commas */
#define RECORDING_CGROUP           "cgroup"    /* the control group's folder; only with --cgroup */
#define RECORDING_TRAINER_TID      "trainer_tid"  /* as given by the user; 0: found automatically */
#define RECORDING_ATTACHED         "attached"     /* 1: the job already ran at the start of the recording */
#define RECORDING_START_NS         "start_ns"     /* CLOCK_MONOTONIC when the job was tagged */
#define RECORDING_STOP_NS          "stop_ns"      /* CLOCK_MONOTONIC when the recording ended */
#define RECORDING_START_CLOCKS     "start_clocks" /* "monotonic boottime realtime uncertainty" */
#define RECORDING_STOP_CLOCKS      "stop_clocks"
#define RECORDING_HOST             "host"
#define RECORDING_KERNEL           "kernel"  /* uname release */
#define RECORDING_MACHINE          "machine" /* x86_64: architecture that defines the syscall numbers */
#define RECORDING_CPUS             "cpus"    /* online */
#define RECORDING_PAGE_BYTES       "page_bytes"
#define RECORDING_EVENTS           "events"       /* n written */
#define RECORDING_LOST_EVENTS      "lost_events"  /* sum over types */
#define RECORDING_LOST_TYPE        "lost_type_%u" /* lost events by enum event_type; only nonzero counts */
#define RECORDING_MISSED           "missed_runs"  /* program runs the kernel skipped */
#define RECORDING_STORAGE_FAILURES "storage_failures" /* threads missing from the job */
#define RECORDING_PROFILE_HZ       "profile_hz"       /* stack samples per second per CPU; 0: none */
#define RECORDING_DETAIL_BYTES     "detail_bytes"     /* limit of detail per minute; 0: none */
#define RECORDING_HOOKS_MISSING    "hooks_missing"    /* names, separated by spaces */
#define RECORDING_BPF_RUN_NS       "bpf_run_ns"       /* CPU time of the BPF programs, extrapolated */
#define RECORDING_BPF_SAMPLED_NS   "bpf_sampled_ns"   /* 0: bpf_run_ns is unknown */
#define RECORDING_RECORDER_CPU_NS  "recorder_cpu_ns"  /* CPU time of the recording program */
#define RECORDING_STEAL_NS         "steal_ns"         /* CPU time taken by the hypervisor while recording */
#define RECORDING_EXIT_STATUS      "exit_status"      /* as waitpid() returns it; launched commands only */
#define RECORDING_SAMPLED          "sampled"          /* 1: /proc was sampled, without privilege */
#define RECORDING_COMPLETE         "complete"         /* 1: closed in order */
#define RECORDING_DIESEL_VERSION   "diesel_version"

/* Creates a file for writing; an existing recording is replaced, any other file is left alone (-EEXIST). */
int recording_create(const char *path, struct recording **ret_recording, struct error *err);

/* Opens an existing file for reading. -ENOENT, -EACCES; -EBADMSG: not a recording; -EPROTONOSUPPORT: written
 * by a newer version. A cut file opens as far as it can be read: recording_complete() is false then. */
int recording_open(const char *path, struct recording **ret_recording, struct error *err);

/* Appends an event, in order of arrival. Events stay in memory until there are RECORDING_BLOB_EVENTS of them
 * or recording_flush() is called. After a failure (-ENOSPC, -EIO) the events already written stay readable.
 */
#define RECORDING_BLOB_EVENTS 8192
int recording_append(struct recording *recording, const struct event *event, struct error *err);
int recording_flush(struct recording *recording, struct error *err);

/* Assigns the detail that follows to this slice; slices are numbered from 1. */
int recording_slice_begin(struct recording *recording, uint64_t slice, struct error *err);
/* Deletes a slice's detail; its space in the file is reused. */
int recording_slice_drop(struct recording *recording, uint64_t slice, struct error *err);
/* Returns the bytes written so far, metadata events and dropped slices included; *ret_detail_bytes: the part
 * of them that is detail. */
uint64_t recording_written_bytes(const struct recording *recording, uint64_t *ret_detail_bytes);

/* Sets a fact about the recording; replaces an earlier value of the key. -errno if it cannot be written. */
int recording_set_text(struct recording *recording, const char *key, const char *value, struct error *err);
int recording_set_u64(struct recording *recording, const char *key, uint64_t value, struct error *err);

/* Reads a fact as text, which the caller frees. -ENOENT: no such key. */
int recording_get_text(struct recording *recording, const char *key, char **ret_value);
int recording_get_u64(struct recording *recording, const char *key, uint64_t *ret_value);

/* Adds a metadata event: see collector_sink. Kind and key are unique together: a later one replaces an
 * earlier one. */
int recording_put(struct recording *recording, const char *kind, uint64_t key, const void *data, size_t size,
		  struct error *err);

/* Calls visit for the metadata events of a kind, in order of their keys, until visit returns nonzero. Returns
 * visit's last result. data is valid only during the call. */
int recording_each(struct recording *recording, const char *kind,
		   int (*visit)(void *user, uint64_t key, const void *data, size_t size), void *user);

/* Returns true if the recording was closed properly, and the parts read so far are undamaged. */
bool recording_complete(const struct recording *recording);
/* Returns true if the recording was incomplete when opened because its recorder was still writing it. */
bool recording_under_way(const struct recording *recording);

/* Writes RECORDING_COMPLETE and makes the recording a single file. */
int recording_finish(struct recording *recording, struct error *err);

/* NULL is fine. Without recording_finish(), a recording that was written stays incomplete. */
void recording_close(struct recording *recording);
static inline void recording_closep(struct recording **recording)
{
	recording_close(*recording);
}

/* Closes the recording like recording_close(), and removes the file. */
void recording_discard(struct recording *recording);

/* The events to iterate over; zeros: all. */
struct recording_filter {
	uint32_t tid;       /* one thread */
	uint32_t type_mask; /* 1 << enum event_type, or-ed */
};

/* Iterates over all events of the file, exactly sorted by end_ns, in bounded memory. filter may be NULL. */
int recording_cursor_open(struct recording *recording, const struct recording_filter *filter,
			  struct recording_cursor **ret_cursor, struct error *err);

/* Returns 1 with an event in *ret_event, valid until the next call, or 0 at the end; -EIO or another errno. A
 * damaged part counts as the end, and makes recording_complete() false. */
int recording_cursor_next(struct recording_cursor *cursor, const struct event **ret_event);

void recording_cursor_close(struct recording_cursor *cursor);
