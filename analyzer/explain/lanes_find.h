/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds the lanes of analyzer/lanes.h. */

#include "analyzer/lanes.h"
#include "analyzer/base/interval.h"
#include "analyzer/shares/study.h"
#include "analyzer/timeline/timeline.h"

/* A lane under construction. Segments are added in chronological order, and neighbours of the same state
 * are merged. */
struct lane_builder {
	struct lane *lane;
	uint64_t cell_ns;                  /* 0: exact */
	const struct interval_list *exact; /* intervals without cells; tidy, of whole cells */
	uint64_t cell_begin_ns;            /* start of the open cell */
	uint64_t cell_known_ns;
	int64_t owed_ns[LANE_STATES]; /* time in each state that is not shown yet */
	size_t n_allocated;
};

/* Adds a segment; ignores one that is empty or out of order. -ENOMEM. */
int lane_builder_add(struct lane_builder *builder, uint64_t begin_ns, uint64_t end_ns, enum lane_state state);
/* Closes the open cell. -ENOMEM. */
int lane_builder_finish(struct lane_builder *builder);

/* n_segments_max: total limit over all lanes. -ENOMEM. */
int lanes_find(const struct study *study, size_t n_segments_max, struct lanes **ret_lanes);
