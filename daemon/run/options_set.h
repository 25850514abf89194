/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions that parse and set a value, for the rows of the options table. */

#include "lib/options.h"
#include "options.h"

#define OPTIONS_MIN_CACHE_BYTES (UINT64_C(16) << 20) /* minimum of --cache: a few of the smallest chunks */

extern const struct option_row option_rows[];
extern const size_t n_option_rows;
extern const struct option_program dieseld_program;

option_set option_number, option_size, option_flag, option_word, option_flag_of_words, option_text,
    option_path, option_cache, option_tuned, option_tune, option_admin, option_codec, option_metrics,
    option_stage, option_quotas, option_cluster, option_cluster_limit, option_ready_fd;

/* Checks that involve more than one setting. */
int option_check_cache(const struct daemon_options *o, struct error *err);
int option_check_cluster(struct daemon_options *o, struct error *err);
