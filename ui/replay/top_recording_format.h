/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions shared by the writer and the reader of reels. */

#include "top_recording.h"

uint64_t top_recording_header_sum(const struct top_recording_header *header);
