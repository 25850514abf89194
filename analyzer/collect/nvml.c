/* SPDX-License-Identifier: Apache-2.0 */
#include "analyzer/nvml.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/error.h"
#include "lib/library.h"
#include "lib/proc.h"

#define LIBRARY       "libnvidia-ml.so.1"
#define PROCESSES_MAX NVML_PIDS_MAX
#define ANCESTORS_MAX 64

/* The part of NVML's interface that is used. It is stable by name: a changed struct gets a function with a
 * new name. */
#define NVML_SUCCESS 0

typedef int nvml_result;
typedef void *nvml_device;

struct nvml_usage {
	unsigned int gpu, memory; /* percent */
};

struct nvml_process {
	unsigned int pid;
	unsigned long long memory_bytes;
	unsigned int gpu_instance, compute_instance;
};

struct nvml_memory {
	unsigned long long total, free, used;
};

_Static_assert(sizeof(struct nvml_memory) == 24, "NVML's");
_Static_assert(sizeof(struct nvml_usage) == 8, "NVML's");
_Static_assert(sizeof(struct nvml_process) == 24, "NVML's, from _v2 on");

struct nvml {
	nvml_result (*init)(void);
	nvml_result (*shutdown)(void);
	const char *(*error_string)(nvml_result);
	nvml_result (*device_count)(unsigned int *);
	nvml_result (*device)(unsigned int, nvml_device *);
	nvml_result (*usage)(nvml_device, struct nvml_usage *);
	nvml_result (*processes)(nvml_device, unsigned int *,
				 struct nvml_process *); /* NULL: an old driver */
	/* NULL: the library lacks it */
	nvml_result (*name)(nvml_device, char *, unsigned int);
	nvml_result (*memory)(nvml_device, struct nvml_memory *);
	nvml_result (*power)(nvml_device, unsigned int *); /* mW */
	bool ready;
};

static int functions_load(struct nvml *nvml, struct error *err)
{
	const struct library_function functions[] = {
	    {"nvmlInit_v2", &nvml->init, true},
	    {"nvmlShutdown", &nvml->shutdown, true},
	    {"nvmlErrorString", &nvml->error_string, false},
	    {"nvmlDeviceGetCount_v2", &nvml->device_count, true},
	    {"nvmlDeviceGetHandleByIndex_v2", &nvml->device, true},
	    {"nvmlDeviceGetUtilizationRates", &nvml->usage, true},
	    {"nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes, false},
	    {"nvmlDeviceGetName", &nvml->name, false},
	    {"nvmlDeviceGetMemoryInfo", &nvml->memory, false},
	    {"nvmlDeviceGetPowerUsage", &nvml->power, false},
	};

	return library_load(LIBRARY, NULL, functions, sizeof(functions) / sizeof(functions[0]), err);
}

int nvml_open(struct nvml **ret_nvml, struct error *err)
{
	struct nvml *nvml = calloc(1, sizeof(*nvml));
	nvml_result result;
	int r;

	if (!nvml)
		return error_set(err, -ENOMEM, "no memory for NVML");
	r = functions_load(nvml, err);
	if (r < 0) {
		nvml_close(nvml);
		return r;
	}
	result = nvml->init();
	if (result != NVML_SUCCESS) {
		error_set(err, -EIO, LIBRARY " does not start: %s",
			  nvml->error_string ? nvml->error_string(result) : "no reason given");
		nvml_close(nvml);
		return -EIO;
	}
	nvml->ready = true;
	*ret_nvml = nvml;
	return 0;
}

struct nvml *nvml_close(struct nvml *nvml)
{
	if (!nvml)
		return NULL;
	if (nvml->ready)
		nvml->shutdown();
	free(nvml);
	return NULL;
}

static bool is_of_job(pid_t pid, const pid_t *roots, size_t n_roots)
{
	for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
		struct proc_stat stat;

		for (size_t k = 0; k < n_roots; k++)
			if (roots[k] == pid)
				return true;
		if (proc_stat_read("/proc", pid, &stat))
			return false;
		pid = stat.parent;
	}
	return false;
}

static size_t pids_of(const struct nvml *nvml, nvml_device device, pid_t pids[PROCESSES_MAX])
{
	struct nvml_process processes[PROCESSES_MAX];
	unsigned int n = PROCESSES_MAX;

	if (!nvml->processes || nvml->processes(device, &n, processes) != NVML_SUCCESS)
		return 0;
	if (n > PROCESSES_MAX)
		n = PROCESSES_MAX;
	for (unsigned int i = 0; i < n; i++)
		pids[i] = (pid_t)processes[i].pid;
	return n;
}

static bool runs_job(const struct nvml *nvml, nvml_device device, const pid_t *roots, size_t n_roots)
{
	pid_t pids[PROCESSES_MAX];
	size_t n = pids_of(nvml, device, pids);

	for (size_t i = 0; i < n; i++)
		if (is_of_job(pids[i], roots, n_roots))
			return true;
	return false;
}

static void gpu_read(const struct nvml *nvml, nvml_device device, struct nvml_gpu *gpu)
{
	struct nvml_memory memory;
	struct nvml_usage usage;
	unsigned int mw;

	if (!nvml->name || nvml->name(device, gpu->name, sizeof(gpu->name)) != NVML_SUCCESS)
		snprintf(gpu->name, sizeof(gpu->name), "GPU");
	gpu->name[sizeof(gpu->name) - 1] = '\0';
	if (nvml->usage(device, &usage) == NVML_SUCCESS && usage.gpu <= 100)
		gpu->busy_ratio = usage.gpu / 100.0;
	if (nvml->memory && nvml->memory(device, &memory) == NVML_SUCCESS) {
		gpu->memory_used_bytes = (double)memory.used;
		gpu->memory_bytes = (double)memory.total;
	}
	if (nvml->power && nvml->power(device, &mw) == NVML_SUCCESS)
		gpu->power_w = mw / 1e3;
	gpu->n_pids = pids_of(nvml, device, gpu->pids);
}

size_t nvml_gpus(const struct nvml *nvml, struct nvml_gpu *ret_gpus, size_t n_max)
{
	unsigned int n = 0;
	size_t n_found = 0;

	if (nvml->device_count(&n) != NVML_SUCCESS)
		return 0;
	for (unsigned int i = 0; i < n && n_found < n_max; i++) {
		struct nvml_gpu *gpu = &ret_gpus[n_found];
		nvml_device device;

		if (nvml->device(i, &device) != NVML_SUCCESS)
			continue;
		*gpu = (struct nvml_gpu){
		    .busy_ratio = NAN, .memory_used_bytes = NAN, .memory_bytes = NAN, .power_w = NAN};
		gpu_read(nvml, device, gpu);
		n_found++;
	}
	return n_found;
}

double nvml_utilization(const struct nvml *nvml, const pid_t *roots, size_t n_roots)
{
	double sum_all = 0, sum_job = 0;
	unsigned int n = 0, n_all = 0, n_job = 0;

	if (nvml->device_count(&n) != NVML_SUCCESS)
		return NAN;
	for (unsigned int i = 0; i < n; i++) {
		struct nvml_usage usage;
		nvml_device device;

		if (nvml->device(i, &device) != NVML_SUCCESS || nvml->usage(device, &usage) != NVML_SUCCESS ||
		    usage.gpu > 100)
			continue;
		sum_all += usage.gpu / 100.0;
		n_all++;
		if (runs_job(nvml, device, roots, n_roots)) {
			sum_job += usage.gpu / 100.0;
			n_job++;
		}
	}
	if (n_job)
		return sum_job / n_job;
	return n_all ? sum_all / n_all : NAN;
}
