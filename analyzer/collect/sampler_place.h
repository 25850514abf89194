/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds out whether a process's main thread is within the next() of a loader, a generator or another
 * iterator, or in the model, from its Python stack. The stack is read from outside, and shows the place both
 * while the thread computes and while it sleeps.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "bpf/event.h"

struct sampler_place;

/* root: "/proc"; borrowed. -ENOENT: not (yet) a Python process; -EPERM: no permission to read its memory;
 * -ENOMEM. */
int sampler_place_open(const char *root, pid_t pid, struct sampler_place **ret_place);
void sampler_place_close(struct sampler_place *place); /* NULL is fine */

/* Returns the thread's current place. SAMPLE_PLACE_UNKNOWN: its stack changed during the walk, or is not
 * readable. */
enum sample_place sampler_place_sample(struct sampler_place *place, uint64_t now_ns);

/* Returns the place that a frame of this function (file and name) indicates; SAMPLE_PLACE_OUTSIDE: none. */
enum sample_place sampler_place_of(const char *path, const char *function, bool generator);
