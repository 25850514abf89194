/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sums the collector's records about the job's reads over the window. A record covers about a fifth of a
 * second; only its part within the window counts. The result is NULL if nothing was measured.
 */

#include "analyzer/page_cache.h"
#include "analyzer/shares/study.h"

/* -ENOMEM. */
int page_cache_find(const struct study *study, struct page_cache **ret_cache);

/* Returns the bytes that the job read from storage and network in the window; NAN: not known. */
double page_cache_cold_bytes(const struct analysis_input *input, const struct window *window);
