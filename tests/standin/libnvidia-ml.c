/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1, for tests on machines without a GPU. Never installed. Two
 * devices: on the first one a process computes (with DIESEL_STANDIN_PID=of-job: the caller's child), and it
 * is at DIESEL_STANDIN_UTILIZATION percent; the second one is another job's, at 100, and tells nothing else.
 * DIESEL_STANDIN_PID=NUMBER: that process computes on the first one. With
 * DIESEL_STANDIN_NVML=broken it does not start.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct usage {
	unsigned int gpu, memory;
};

struct process {
	unsigned int pid;
	unsigned long long memory_bytes;
	unsigned int gpu_instance, compute_instance;
};

struct memory {
	unsigned long long total, free, used;
};

int nvmlDeviceGetName(void *device, char *name, unsigned int size);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts);
int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned int *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
int nvmlDeviceGetUtilizationRates(void *device, struct usage *usage);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n, struct process *processes);

/* The recorder's child is the job. */
static unsigned int child(void)
{
	unsigned int pid = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	file = fopen(path, "r");
	if (!file || fscanf(file, "%u", &pid) != 1)
		pid = 1;
	if (file)
		fclose(file);
	return pid;
}

EXPORT int nvmlInit_v2(void)
{
	const char *how = getenv("DIESEL_STANDIN_NVML");

	return how && !strcmp(how, "broken") ? 9 : 0;
}

EXPORT int nvmlShutdown(void)
{
	return 0;
}

EXPORT const char *nvmlErrorString(int result)
{
	return result ? "Driver Not Loaded (stand-in)" : "Success";
}

EXPORT int nvmlDeviceGetCount_v2(unsigned int *n)
{
	*n = 2;
	return 0;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	*device = (void *)(uintptr_t)(index + 1);
	return index < 2 ? 0 : 2;
}

EXPORT int nvmlDeviceGetUtilizationRates(void *device, struct usage *usage)
{
	const char *percent = getenv("DIESEL_STANDIN_UTILIZATION");

	usage->gpu = (uintptr_t)device == 2 ? 100 : percent ? (unsigned int)atoi(percent) : 0;
	usage->memory = 0;
	return 0;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *n, struct process *processes)
{
	const char *pid = getenv("DIESEL_STANDIN_PID");

	if (*n < 1)
		return 7;
	*n = 1;
	memset(processes, 0, sizeof(*processes));
	processes[0].pid = (uintptr_t)device != 1 || !pid ? 1 : atoi(pid) ? (unsigned int)atoi(pid) : child();
	return 0;
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned int size)
{
	snprintf(name, size, "stand-in %d", (int)(uintptr_t)device);
	return 0;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
	*memory = (struct memory){64ULL << 30, 48ULL << 30, 16ULL << 30};
	return (uintptr_t)device == 1 ? 0 : 3;
}

EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts)
{
	*milliwatts = 250500;
	return (uintptr_t)device == 1 ? 0 : 3;
}
