/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions shared by the writer and the reader of reels. */

#include "reel.h"

uint64_t reel_header_sum(const struct reel_header *header);
