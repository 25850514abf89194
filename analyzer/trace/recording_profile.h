/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads a recording's metadata about stacks, for an analysis. */

#include <stddef.h>

#include "analyzer/profile.h"

struct recording;

struct recording_profile {
	struct profile_metadata metadata;
	struct profile_frame *frames;
	struct profile_trace *traces;
	size_t n_frames_allocated, n_traces_allocated;
};

/* Loads the metadata; skips damaged entries. -ENOMEM. Free *profile in any case. */
int recording_profile_load(struct recording *recording, struct recording_profile *profile);
void recording_profile_free(struct recording_profile *profile);
