/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Builds what analyzer/lanes.h shows. */

#include "analyzer/lanes.h"
#include "interval.h"
#include "study.h"
#include "timeline.h"

/* A lane in the making: segments are added in order of time; neighbours of the same state become one. */
struct lane_builder {
	struct lane *lane;
	uint64_t cell_ns;                  /* 0: exact */
	const struct interval_list *exact; /* stretches without cells; tidy, of whole cells */
	uint64_t cell_begin_ns;            /* of the open cell */
	uint64_t cell_known_ns;
	int64_t owed_ns[LANE_STATES]; /* time in each state that was not shown yet */
	size_t n_allocated;
};

/* -ENOMEM. A segment that is empty or out of order is left out. */
int lane_builder_add(struct lane_builder *builder, uint64_t begin_ns, uint64_t end_ns, enum lane_state state);
/* Closes the open cell. -ENOMEM. */
int lane_builder_finish(struct lane_builder *builder);

/* The thread's segments within [begin_ns, end_ns). -ENOMEM. */
int lane_of_trainer(const struct study *study, uint64_t begin_ns, uint64_t end_ns,
		    struct lane_builder *builder);
int lane_of_thread(const struct study *study, const struct timeline_thread *thread, enum lane_role role,
		   uint64_t begin_ns, uint64_t end_ns, struct lane_builder *builder);
/* Appends the worker's batches within the interval. -ENOMEM. */
int lane_batches(const struct study *study, const struct timeline_thread *worker, uint64_t begin_ns,
		 uint64_t end_ns, struct lane *lane);

/* of_thread[i]: lane of timeline->threads[i], or UINT32_MAX. -ENOMEM. */
int lanes_wakes_find(const struct study *study, const uint32_t *of_thread, size_t max, struct lanes *lanes);
int lanes_waits_find(const struct study *study, size_t max, struct lanes *lanes);
int lanes_gpu_calls_find(const struct study *study, const uint32_t *of_thread, size_t max,
			 struct lanes *lanes);
int lanes_levels_find(const struct window *window, size_t max, struct lanes *lanes);

/* n_segments_max: over all lanes. -ENOMEM. */
int lanes_find(const struct study *study, size_t n_segments_max, struct lanes **ret_lanes);
