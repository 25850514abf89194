/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Makes one note (bpf/metadata.h) for each frame and stack. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/metadata.h"

struct collector_sink;
struct names;

struct names *names_new(void);
void names_free(struct names *names);

/* Returns the key of a frame, and passes its note to the sink the first time; 0 if there are too many frames.
 * library and function may hold any bytes; "": not known. */
uint64_t names_frame(struct names *names, enum frame_kind kind, const char *library, const char *function,
		     const struct collector_sink *sink);

/* Like names_frame(), for a stack of n <= METADATA_STACK_FRAMES_MAX frames; 0 if n is 0. */
uint64_t names_stack(struct names *names, const uint64_t *frames, size_t n,
		     const struct collector_sink *sink);
