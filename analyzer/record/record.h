/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Records one job. The caller must block SIGINT, SIGTERM, SIGHUP and SIGQUIT, because they are read from a
 * signalfd. A launched command gets them as it would from a shell, and recording continues until it ends.
 * Without a command they end the recording.
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
	bool unprivileged;    /* sample /proc even if BPF works */
	uint32_t trainer_tid; /* named by the user; 0: the report finds the trainer */
	uint64_t duration_ns; /* 0: until the job ends */
	uint64_t ring_bytes;
	uint64_t detail_bytes_per_minute; /* 0: record all in detail */
	uint64_t profile_hz;              /* per CPU; 0: no stack samples */
	const char *btf_path;
	const sigset_t *command_signals; /* the mask for the command */
};

struct record_roots;

struct record_result {
	int status;       /* status of the command, as waitpid() returns it; 0 without a command */
	int launch_error; /* -errno: the command could not be started */
	uint64_t duration_ns, n_events, n_lost;
	uint64_t unrecorded_ns; /* time without detail */
};

/* Records a job. If recording fails after the command started, the command continues: this function waits
 * for it, sets *ret_result with its status in spite of the failure, and returns the error. status is -1 if
 * the command never ran; then the recording is removed. */
int record_run(const struct record_options *options, struct record_result *ret_result, struct error *err);
