/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The collector loads the recorder into the kernel, tells it which processes are the job, and passes on its
 * events. The job is never stopped, signalled or changed, and continues if the collector dies.
 *
 *   collector_open -> collector_launch or collector_attach (once or more) -> collector_poll ... ->
 *   collector_stop -> collector_close
 *
 * A job is one or more processes with all their threads and descendants, existing and future ones. The
 * caller's own process is never part of it. One thread uses a collector. It needs root, or CAP_BPF,
 * CAP_PERFMON, CAP_SYS_PTRACE (to reach the libraries of other users' processes), and CAP_SYS_ADMIN to know
 * its own cost, and before Linux 6.6 to probe libraries.
 */

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/event.h"

struct error;
struct collector;

#define COLLECTOR_EVENT_TYPES EVENT_TYPE_LIMIT

struct collector_options {
	uint64_t ring_bytes;   /* kernel buffer; rounded up to a power of two; 0: 8 MiB */
	const char *btf_path;  /* NULL: /sys/kernel/btf/vmlinux */
	const char *proc_path; /* where a sampler (analyzer/source.h) finds processes; NULL: /proc */
	bool no_children;      /* processes that the job creates are not part of it, but its threads are */
	uint32_t profile_hz;   /* stack samples per second per CPU, see bpf/metadata.h; 0: none */
};

/* Loads and attaches the recorder, and leaves out optional programs that the kernel refuses: struct
 * collector_stats lists them. From then on the programs run at every system call and context switch of the
 * machine, but record nothing before there is a job. -ENOENT: the kernel has no BTF; -EPERM: no privilege;
 * -ENOSYS: the kernel refuses a required program; others are the kernel's own. err says what to do. */
int collector_open(const struct collector_options *options, struct collector **ret_collector,
		   struct error *err);

/* Starts a command (looked up in PATH) as a child whose first instruction is already recorded. signals is the
 * mask that the command gets; NULL: the caller's. The caller waits for the child. On -errno, as of execvp(),
 * the child is gone. */
int collector_launch(struct collector *collector, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		     struct error *err);

/* Makes a running process, its threads and its descendants part of the job. -ESRCH: there is no such process.
 * Each of its threads gets EVENT_ALIVE and EVENT_NAME; its current call or interval will be flagged
 * EVENT_FLAG_CLIPPED. */
int collector_attach(struct collector *collector, pid_t tgid, struct error *err);

/* Returns true if this process is part of the job, and false if not or if it has exited. */
bool collector_has(const struct collector *collector, pid_t tgid);

/* Receives the collector's events and metadata. Neither function may keep the pointers. */
struct collector_sink {
	void (*event)(void *user, const struct event *event);
	/* Metadata: data that does not fit an event, such as a file's path, a stack, a symbol. kind is static
	 * text, and defines the format of data. An entry replaces an earlier one of the same kind and key. */
	void (*metadata)(void *user, const char *kind, uint64_t key, const void *data, size_t size);
	void *user;
};

/* Waits up to timeout_ms (0: not at all) and passes all collected events to the sink. Returns the number
 * of events, or -errno; -EINTR if a signal arrived. Call it at least every 100 ms, because it also sets
 * probes in libraries that the job has mapped. */
int collector_poll(struct collector *collector, int timeout_ms, const struct collector_sink *sink);

/* Switches the recording of detail (intervals off the CPU, system calls) on or off; thread lifetimes, steps
 * and totals are always recorded. Detail that began before it was switched off is still recorded. Returns the
 * time. */
uint64_t collector_detail(struct collector *collector, bool wanted);

/* Returns a descriptor that is readable when collector_poll() has urgent work, for an event loop that also
 * has a timer. Owned by the collector. */
int collector_fd(const struct collector *collector);

/* Returns true if major page faults are recorded as a whole (EVENT_FAULT). Otherwise only their sleeps are
 * known. */
bool collector_times_faults(const struct collector *collector);

/* Returns the number of the job's threads that are alive. */
uint64_t collector_alive(const struct collector *collector);

/* Removes all hooks, then passes on the rest: collected events, the unfinished interval and system call of
 * each living thread (flagged EVENT_FLAG_CLIPPED), and its EVENT_TOTALS. These are the last records that
 * the sink gets. */
int collector_stop(struct collector *collector, const struct collector_sink *sink, struct error *err);

/* Frees the collector, also without collector_stop() before. Accepts NULL. */
void collector_close(struct collector *collector);

#define COLLECTOR_REFUSALS_MAX 32
#define COLLECTOR_PROGRAM_SIZE 48
#define COLLECTOR_REASON_SIZE  200

/* A program that the kernel refused although it has the hook. The collector works without it. */
struct collector_refusal {
	char program[COLLECTOR_PROGRAM_SIZE]; /* the program's name: its tracepoint's name, if it has one */
	char reason[COLLECTOR_REASON_SIZE];   /* one line: the verifier's last line, or libbpf's message */
	const char *lost_without;             /* part of a report that is lost without the program */
};

struct collector_stats {
	uint64_t events[COLLECTOR_EVENT_TYPES]; /* events passed on, by enum event_type */
	uint64_t lost[COLLECTOR_EVENT_TYPES];   /* dropped because a buffer was full; totals stay exact */
	uint64_t storage_failures; /* threads that could not be tagged: they are missing from the job */
	uint64_t missed;           /* runs that the kernel skipped because the program was already running */
	uint64_t bpf_run_ns;       /* CPU time of the programs, extrapolated from samples of 100 ms */
	uint64_t sampled_ns;       /* length of these samples; 0: bpf_run_ns is unknown */
	uint64_t own_cpu_ns;       /* CPU time of the calling process since collector_open */
	uint64_t elapsed_ns;       /* time since collector_open() */
	uint64_t clock_start;      /* CLOCK_MONOTONIC at collector_open */
	uint32_t profile_hz;       /* 0: no stack samples are taken */
	int profile_error;         /* -errno: reason for missing samples that the caller requested */
	const struct collector_refusal *refusals; /* owned by the collector, valid until it is closed */
	size_t n_refusals;
	bool no_probes; /* libraries cannot be probed: before Linux 6.6 that takes CAP_SYS_ADMIN */
};

void collector_stats_get(struct collector *collector, struct collector_stats *ret_stats);

/* A hook: whether this kernel has it, and what a report lacks without it. */
struct collector_hook {
	const char *name;         /* tracepoint */
	const char *lost_without; /* part of a report that is lost without it, in words; static */
	bool present;             /* this kernel has it */
	bool required;            /* collector_open fails without it */
};

#define COLLECTOR_HOOKS_MAX 64

/* Looks up all hooks in the kernel's BTF. Needs no privilege. -ENOENT: no BTF. */
int collector_hooks(const char *btf_path, struct collector_hook hooks[COLLECTOR_HOOKS_MAX], size_t *ret_n,
		    struct error *err);
