/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A session's notes about stacks, for an analysis. */

#include <stddef.h>

#include "analyzer/profile.h"

struct session;

struct session_profile {
	struct profile_notes notes;
	struct profile_frame *frames;
	struct profile_trace *traces;
	size_t n_frames_allocated, n_traces_allocated;
};

/* -ENOMEM. Notes that are damaged are left out. Free in any case. */
int session_profile_load(struct session *session, struct session_profile *profile);
void session_profile_free(struct session_profile *profile);
