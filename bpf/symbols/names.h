/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Frames and stacks as notes (bpf/notes.h), each given once. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/notes.h"

struct collector_sink;
struct names;

struct names *names_new(void);
void names_free(struct names *names);

/* Key of a frame, whose note goes to the sink if it is the first time. 0: there are too many. library and
 * function may hold any bytes; "": not known. */
uint64_t names_frame(struct names *names, enum frame_kind kind, const char *library, const char *function,
		     const struct collector_sink *sink);

/* Key of a stack of frames. n <= NOTE_STACK_FRAMES_MAX; 0 frames: 0. */
uint64_t names_stack(struct names *names, const uint64_t *frames, size_t n,
		     const struct collector_sink *sink);
