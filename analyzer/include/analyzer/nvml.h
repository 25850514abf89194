/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What NVIDIA's management library says of the GPUs of a job: a cross-check of what the probes on the driver
 * say, never needed. The library is opened when it is there; nothing of it is linked.
 *
 * Its "utilization" is the share of a past interval (the driver's, up to 1 s) in which at least one kernel
 * ran: a GPU that runs one small kernel after the other is at 1. Only GPUs that a process of the job computes
 * on count; where NVML names none (in containers it may show the host's PIDs), all GPUs of the machine do.
 *
 * Opening takes up to seconds where no driver keeps the GPUs awake; the other calls ask a device and take
 * a millisecond or so.
 */

#include <stddef.h>
#include <sys/types.h>

struct error;
struct nvml;

#define NVML_PIDS_MAX 64

struct nvml_gpu {
	char name[64];
	double busy_ratio;                      /* utilization; NAN: not known, here and below */
	double memory_used_bytes, memory_bytes; /* on the device */
	double power_w;
	pid_t pids[NVML_PIDS_MAX]; /* that compute on it; if there are more, the first ones */
	size_t n_pids;
};

/* -ENOENT: there is no such library; -EIO: it is there and does not work (err says what it says). */
int nvml_open(struct nvml **ret_nvml, struct error *err);
struct nvml *nvml_close(struct nvml *nvml);

/* Fills in the machine's GPUs, at most n_max. Returns how many. */
size_t nvml_gpus(const struct nvml *nvml, struct nvml_gpu *ret_gpus, size_t n_max);

/* Mean over the GPUs, 0 to 1; NAN: not known. roots: processes whose descendants are the job. */
double nvml_utilization(const struct nvml *nvml, const pid_t *roots, size_t n_roots);
