/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What writer and reader of reel.h share. */

#include "reel.h"

uint64_t reel_header_sum(const struct reel_header *header);
