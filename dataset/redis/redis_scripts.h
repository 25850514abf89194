/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scripts that the server runs atomically. dataset/meta/redis_buckets.h describes the values. */

#include "redis_link.h"

#define SCRIPT_MAX_ARGS 256

extern const char *const redis_scripts[N_REDIS_SCRIPTS];
