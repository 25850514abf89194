/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The table of options, and what options.c knows of its rows. */

#include "lib/options.h"
#include "options.h"

#define OPTIONS_MIN_CACHE_BYTES (UINT64_C(16) << 20) /* minimum of --cache: a few of the smallest chunks */

extern const struct option_row option_rows[];
extern const size_t n_option_rows;
extern const struct option_program dieseld_program;

option_set option_cache, option_codec, option_admin;
