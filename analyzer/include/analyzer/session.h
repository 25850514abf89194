/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A recorded session: one SQLite file with the events of bpf/event.h and facts about the recording. It is a
 * single file once closed; one that was cut off in the middle is still readable as far as it got.
 *
 * Format: application_id 0x444c5331 ("DLS1"), user_version
 * SESSION_VERSION;
 *   info(key TEXT PRIMARY KEY, value TEXT)
 *   events(id INTEGER PRIMARY KEY, slice, min_end_ns, max_end_ns, n, records BLOB): n events, sorted by
 *   end_ns and packed (session_codec.h); blocks overlap in time only a little, as they are written while the
 *   events come. slice 0: events of the whole recording (lives of threads, steps, gaps); slice 1, 2, ...:
 *   detail, which a long recording has only now and then (EVENT_GAP says when it has none).
 *   notes(kind TEXT, key INTEGER, value BLOB): what does not fit an event: names, paths, stacks. From
 * version 2.
 *
 * A session belongs to one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

struct error;
struct session;
struct session_cursor;

#define SESSION_VERSION 2

/* Keys of info. Times are ns, sizes bytes, both decimal. */
#define SESSION_COMMAND          "command"      /* what was run, or the command line of the process */
#define SESSION_ROOT_TGID        "root_tgid"    /* the job's first process */
#define SESSION_ROOTS            "roots"        /* all of them, separated by commas */
#define SESSION_CGROUP           "cgroup"       /* its folder; only with --cgroup */
#define SESSION_TRAINER_TID      "trainer_tid"  /* as the user named it; 0: find it */
#define SESSION_ATTACHED         "attached"     /* 1: it ran already when the recording began */
#define SESSION_START_NS         "start_ns"     /* CLOCK_MONOTONIC when the job was tagged */
#define SESSION_STOP_NS          "stop_ns"      /* and when the recording ended */
#define SESSION_START_CLOCKS     "start_clocks" /* "monotonic boottime realtime uncertainty" */
#define SESSION_STOP_CLOCKS      "stop_clocks"
#define SESSION_HOST             "host"
#define SESSION_KERNEL           "kernel"  /* uname release */
#define SESSION_MACHINE          "machine" /* x86_64: what syscall numbers mean */
#define SESSION_CPUS             "cpus"    /* online */
#define SESSION_PAGE_BYTES       "page_bytes"
#define SESSION_EVENTS           "events"           /* n written */
#define SESSION_LOST_EVENTS      "lost_events"      /* sum over types */
#define SESSION_LOST_TYPE        "lost_type_%u"     /* by enum event_type; only those above 0 */
#define SESSION_MISSED           "missed_runs"      /* program runs the kernel skipped */
#define SESSION_STORAGE_FAILURES "storage_failures" /* threads missing from the job */
#define SESSION_PROFILE_HZ       "profile_hz"       /* stack samples per second per CPU; 0: none */
#define SESSION_DETAIL_BYTES     "detail_bytes"     /* that detail may take a minute; 0: all of it */
#define SESSION_PROBES           "probes"           /* user-space functions probed */
#define SESSION_HOOKS_MISSING    "hooks_missing"    /* names, separated by spaces */
#define SESSION_BPF_RUN_NS       "bpf_run_ns"       /* CPU time of the BPF programs, extrapolated */
#define SESSION_BPF_SAMPLED_NS   "bpf_sampled_ns"   /* 0: the former is unknown */
#define SESSION_RECORDER_CPU_NS  "recorder_cpu_ns"  /* CPU time of the recording program */
#define SESSION_STEAL_NS         "steal_ns"         /* taken by the hypervisor from all CPUs meanwhile */
#define SESSION_EXIT_STATUS      "exit_status"      /* as waitpid gives it; only for launched commands */
#define SESSION_SAMPLED          "sampled"          /* 1: /proc was sampled, without privilege */
#define SESSION_COMPLETE         "complete"         /* 1: closed in order */
#define SESSION_DIESEL_VERSION   "diesel_version"

/* A new file for writing; an existing session is replaced, any other file is left alone (-EEXIST). */
int session_create(const char *path, struct session **ret_session, struct error *err);

/* An existing file for reading. -ENOENT, -EACCES; -EBADMSG: no session; -EPROTONOSUPPORT: written by a newer
 * version. A cut file opens as far as it can be read: session_complete() is false then. */
int session_open(const char *path, struct session **ret_session, struct error *err);

/* Events in the order they come; kept in memory until SESSION_BLOB_EVENTS are there or session_flush. After a
 * failure (-ENOSPC, -EIO) the session stays usable for reading what was written. */
#define SESSION_BLOB_EVENTS 8192
int session_append(struct session *session, const struct event *event, struct error *err);
int session_flush(struct session *session, struct error *err);

/* Detail that follows belongs to this slice; it starts with 1. */
int session_slice_begin(struct session *session, uint64_t slice, struct error *err);
/* Forgets a slice's detail; its room in the file is used again. */
int session_slice_drop(struct session *session, uint64_t slice, struct error *err);
/* What was written so far, notes and dropped slices included; and the detail in it. */
uint64_t session_written_bytes(const struct session *session, uint64_t *ret_detail_bytes);

int session_set_text(struct session *session, const char *key, const char *value, struct error *err);
int session_set_u64(struct session *session, const char *key, uint64_t value, struct error *err);

/* -ENOENT: no such key. Caller frees the text. */
int session_get_text(struct session *session, const char *key, char **ret_value);
int session_get_u64(struct session *session, const char *key, uint64_t *ret_value);

/* A note: see collector_sink. Kind and key are unique together: a later note replaces an earlier one. */
int session_put(struct session *session, const char *kind, uint64_t key, const void *data, size_t size,
		struct error *err);

/* All notes of a kind by key, as long as visit returns 0; else its result. data is valid during the call. */
int session_each(struct session *session, const char *kind,
		 int (*visit)(void *user, uint64_t key, const void *data, size_t size), void *user);

/* The recording was closed in order, and the file is whole as far as it was read by now. */
bool session_complete(const struct session *session);

/* Writes SESSION_COMPLETE and makes it a single file. */
int session_finish(struct session *session, struct error *err);

/* NULL is fine. Without session_finish a written session stays incomplete. */
void session_close(struct session *session);

/* As session_close, and removes the file. */
void session_discard(struct session *session);

/* Which events to iterate over; zeros: all. */
struct session_filter {
	uint32_t tid;       /* one thread */
	uint32_t type_mask; /* 1 << enum event_type, or-ed */
};

/* All events by end_ns, exactly sorted, over the whole file, in bounded memory. filter may be NULL. */
int session_cursor_open(struct session *session, const struct session_filter *filter,
			struct session_cursor **ret_cursor, struct error *err);

/* 1: *ret_event is valid until the next call; 0: there are no more; negative: -EIO and the like. A damaged
 * part ends the iteration as if it were the end, and makes session_complete() false. */
int session_cursor_next(struct session_cursor *cursor, const struct event **ret_event);

void session_cursor_close(struct session_cursor *cursor);
