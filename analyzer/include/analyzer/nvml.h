/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Utilization of a job's GPUs from NVML, NVIDIA's management library: a cross-check of the probes on the
 * driver, never required. The library is loaded at run time if it is installed; nothing is linked.
 *
 * NVML's "utilization" is the share of a past interval (the driver's, up to 1 s) in which at least one kernel
 * ran: a GPU that runs one small kernel after the other is at 1. Only GPUs on which a process of the job
 * computes count. If NVML names none (in containers it may show the host's PIDs), all GPUs count.
 *
 * Opening can take seconds if no driver keeps the GPUs awake. The other calls query a device and take about
 * a millisecond.
 */

#include <stddef.h>
#include <sys/types.h>

struct error;
struct nvml;

#define NVML_PIDS_MAX 64

struct nvml_gpu {
	char name[64];
	double busy_ratio;                      /* utilization; NAN: not known, here and below */
	double memory_used_bytes, memory_bytes; /* memory of the device */
	double power_w;
	pid_t pids[NVML_PIDS_MAX]; /* processes that compute on the GPU; only the first NVML_PIDS_MAX */
	size_t n_pids;
};

/* Loads and initialises NVML. -ELIBACC: no such library; -EIO: the library does not work (err has its text).
 */
int nvml_open(struct nvml **ret_nvml, struct error *err);
struct nvml *nvml_close(struct nvml *nvml);

/* Fills in the machine's GPUs, at most n_max. Returns how many. */
size_t nvml_gpus(const struct nvml *nvml, struct nvml_gpu *ret_gpus, size_t n_max);

/* Returns the mean utilization over the job's GPUs, 0 to 1; NAN: not known. roots: the job's first processes;
 * their descendants belong to the job, too. */
double nvml_utilization(const struct nvml *nvml, const pid_t *roots, size_t n_roots);
