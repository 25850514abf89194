/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Records one job. SIGINT, SIGTERM, SIGHUP and SIGQUIT must be blocked by the caller:
 * they are taken from a signalfd. A launched command gets them as it would from a shell; recording goes on
 * until it ends. Without a command they end the recording.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define RECORD_DETAIL_DEFAULT (UINT64_C(1) << 20)

struct collector_stats;
struct error;
struct recording;
struct source;

struct record_options {
	const char *output;
	char **command;     /* or */
	const pid_t *tgids; /* or */
	size_t n_tgids;
	const char *cgroup;
	bool no_children;
	bool unprivileged;    /* sample /proc, also where BPF would work */
	uint32_t trainer_tid; /* as the user names it; 0: the report finds it */
	uint64_t duration_ns; /* 0: until the job ends */
	uint64_t ring_bytes;
	uint64_t detail_bytes_per_minute; /* 0: record all in detail */
	uint32_t profile_hz;              /* 0: no stack samples */
	const char *btf_path;
	const sigset_t *command_signals; /* the mask for the command */
};

struct record_roots;

struct record_result {
	int status;       /* of the command, as waitpid gives it; 0 without one */
	int launch_error; /* -errno: the command could not be started */
	uint64_t duration_ns, n_events, n_lost;
	uint64_t unrecorded_ns; /* without detail */
};

/* A failure after the command started does not stop it: it is waited for, *ret_result has its status (this
 * one out-parameter is written then too), and the error is returned. status is -1 when it never ran; the
 * recording is removed then. */
int record_run(const struct record_options *options, struct record_result *ret_result, struct error *err);
