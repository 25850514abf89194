/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files and folders of a job's reads: those from which most came from storage. */

#include "analyzer/page_cache.h"
#include "study.h"

/* Fills files and folders. -ENOMEM; what is there already belongs to the cache all the same. */
int page_places_find(const struct study *study, struct page_cache *cache);
