/* SPDX-License-Identifier: Apache-2.0 */
#include "check_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analyzer/nvml.h"
#include "bpf/gpu.h"
#include "lib/error.h"

#define DRIVER "libcuda.so.1"

static bool is_in(const char *folder, size_t length, char *path, size_t size)
{
	if (!length || (size_t)snprintf(path, size, "%.*s/" DRIVER, (int)length, folder) >= size)
		return false;
	return access(path, R_OK) == 0;
}

static bool driver_find(char *path, size_t size)
{
	static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu",
					      "/usr/lib64",
					      "/usr/lib",
					      "/usr/lib/x86_64-linux-gnu/nvidia/current",
					      "/usr/local/nvidia/lib64",
					      "/usr/lib/wsl/lib",
					      "/run/opengl-driver/lib"};
	const char *at = getenv("LD_LIBRARY_PATH");

	while (at && *at) {
		size_t length = strcspn(at, ":");

		if (is_in(at, length, path, size))
			return true;
		at += length + (at[length] == ':');
	}
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (is_in(folders[i], strlen(folders[i]), path, size))
			return true;
	return false;
}

static void look_at_driver(struct check_gpu *gpu)
{
	struct gpu_probes probes;
	char path[512];
	int r;

	if (!driver_find(path, sizeof(path))) {
		snprintf(gpu->driver_detail, sizeof(gpu->driver_detail),
			 "no " DRIVER
			 " here: waiting for a GPU is not told apart, unless the job brings its own");
		return;
	}
	r = gpu_probes_look(path, &probes);
	if (r < 0) {
		snprintf(gpu->driver_detail, sizeof(gpu->driver_detail), "%s: %s", path, strerror(-r));
		return;
	}
	gpu->has_driver = probes.n_probed > 0;
	snprintf(gpu->driver_detail, sizeof(gpu->driver_detail),
		 "%s: %u functions to probe, %u of them at the higher price, %u not in this driver", path,
		 probes.n_probed, probes.n_expensive, probes.n_missing);
}

void check_gpu_look(struct check_gpu *ret_gpu)
{
	struct check_gpu gpu = {0};
	struct error err = ERROR_INIT;
	struct nvml *nvml = NULL;

	look_at_driver(&gpu);
	gpu.has_nvml = nvml_open(&nvml, &err) == 0;
	snprintf(gpu.nvml_detail, sizeof(gpu.nvml_detail), "%s%s", gpu.has_nvml ? "works" : err.text,
		 gpu.has_nvml ? "" : ": no utilization to check the GPU figures against");
	nvml_close(nvml);
	*ret_gpu = gpu;
}
