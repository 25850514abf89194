/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Is a process's main thread within the next() of a loader, a generator or another iterator, or in the model?
 * Its Python stack, which is read from outside, tells whether it computes or sleeps there in whatever call.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "bpf/event.h"

struct sampler_place;

/* root: "/proc"; borrowed. -ENOENT: not a Python process, or not yet; -EPERM: its memory is not ours to read;
 * -ENOMEM. */
int sampler_place_open(const char *root, pid_t pid, struct sampler_place **ret_place);
void sampler_place_close(struct sampler_place *place); /* NULL is fine */

/* Returns where it is now. SAMPLE_PLACE_UNKNOWN: its stack changed meanwhile, or cannot be read any more. */
enum sample_place sampler_place_look(struct sampler_place *place, uint64_t now_ns);

/* Returns where a thread is that has this function's frame, by its file and name; else SAMPLE_PLACE_OUTSIDE.
 */
enum sample_place sampler_place_of(const char *path, const char *function, bool generator);
