/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Is a process's main thread within a data loader's next()? Its Python stack tells, which is read from
 * outside: also what computes there, and what sleeps there in whatever call.
 */

#include <sys/types.h>

#include "bpf/event.h"

struct sampler_place;

/* root: "/proc"; borrowed. -ENOENT: not a Python process, or not yet; -EPERM: its memory is not ours to read;
 * -ENOMEM. */
int sampler_place_open(const char *root, pid_t pid, struct sampler_place **ret_place);
void sampler_place_close(struct sampler_place *place); /* NULL is fine */

/* Now. SAMPLE_PLACE_UNKNOWN: its stack changed meanwhile, or cannot be read any more. */
enum sample_place sampler_place_look(struct sampler_place *place, uint64_t now_ns);

/* What a function is by its file and name: SAMPLE_PLACE_OUTSIDE, of which loader it is the next(), or
 * SAMPLE_PLACE_COMPILING. */
enum sample_place sampler_place_of(const char *path, const char *function);
