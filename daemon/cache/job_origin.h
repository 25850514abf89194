/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who runs a job, as Slurm and Kubernetes know it: for metrics and the log, and for no decision.
 *
 * The numbers of a Slurm job and of a pod come from the control group of the job's process, which the kernel
 * vouches for, where it has them. All else is the client's own word (WIRE_ORIGIN). Texts consist of
 * letters, digits and "._-"; "": not known.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "client/protocol.h"

struct job_origin {
	char slurm_job[WIRE_ORIGIN_BYTES];
	char account[WIRE_ORIGIN_BYTES];
	char pod[WIRE_POD_BYTES];
	char pod_uid[40];
	char pod_namespace[WIRE_ORIGIN_BYTES];
};

/* Takes what the client said. */
void job_origin_said(struct job_origin *o, const struct wire_origin *said);
/* Puts in its place what a text of /proc/PID/cgroup has. */
void job_origin_group(struct job_origin *o, const char *text);
/* The same for a process; one that is gone, or hidden, changes nothing. */
void job_origin_process(struct job_origin *o, const char *proc_root, pid_t pid);
/* Returns true if anything is known. */
bool job_origin_is_known(const struct job_origin *o);
