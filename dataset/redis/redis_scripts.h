/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the server does as a whole. dataset/meta/redis_buckets.h says what the values are. */

#include "redis_link.h"

#define SCRIPT_MAX_ARGS 256

extern const char *const redis_scripts[N_REDIS_SCRIPTS];
