/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sums what the collector says about the job's reads over the window: each of its records covers a fifth of a
 * second or so, and counts as far as it lies in the window. The result is NULL where nothing was measured.
 */

#include "analyzer/page_cache.h"
#include "analyzer/shares/study.h"

/* -ENOMEM. */
int page_cache_find(const struct study *study, struct page_cache **ret_cache);

/* Bytes of files, and from the network, that the job brought in in the window; NAN: not known. */
double page_cache_cold_bytes(const struct analysis_input *input, const struct window *window);
