/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * GPU use of the trainer's process in the window, from the probes on libcuda.
 *
 *   waiting  the trainer in a synchronising call, spinning or asleep, outside of data waits and checkpoints
 *            (those have their own shares) and not while it lacks a core (that is cpu_starved)
 *   starved  the GPU certainly had nothing queued while the trainer waited for data: a lower bound
 */

#include "analyzer/gpu.h"
#include "analyzer/shares/study.h"

/* ret_use: NULL if libcuda was not probed and no call into it was seen. -ENOMEM. */
int gpu_find(const struct study *study, struct gpu_use **ret_use);
