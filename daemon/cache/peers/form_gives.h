/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoded forms that other nodes of a job ask for (form_answer.h). They are given those that are in memory,
 * of the user and key that the group and the question name; nothing is decoded for them, and nothing is kept
 * longer. A worker copies them. Loop thread only.
 */

#include "cluster.h"

struct cache;

#define FORM_GIVES_MAX 16 /* answers at one time */

/* For struct cluster_handler; user: the cache. */
void form_gives_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		      const struct cluster_forms_wanted *wanted, struct cluster_question *question);
void form_gives_given(void *user, void *answer);
