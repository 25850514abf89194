/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `check` says of GPUs: is there a driver library to probe, and NVML. */

#include <stdbool.h>
#include <stddef.h>

struct check_gpu {
	bool has_driver; /* detail: what of it can be probed; else what is lost */
	bool has_nvml;
	char driver_detail[200], nvml_detail[200];
};

/* Looks where the loader would: LD_LIBRARY_PATH, then the usual folders. A job in a container brings its own.
 */
void check_gpu_look(struct check_gpu *ret_gpu);
