/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes_find.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/array.h"

static int append(struct lane_builder *builder, uint64_t begin_ns, uint64_t end_ns, enum lane_state state)
{
	struct lane *lane = builder->lane;
	struct lane_segment *last = lane->n_segments ? &lane->segments[lane->n_segments - 1] : NULL;

	if (last && last->state == state && last->end_ns == begin_ns) {
		last->end_ns = end_ns;
		return 0;
	}
	if (array_reserve(lane->segments, lane->n_segments, builder->n_allocated) < 0)
		return -ENOMEM;
	lane->segments[lane->n_segments++] = (struct lane_segment){begin_ns, end_ns, state};
	return 0;
}

/* A cell shows one state. Time owed to the other states is carried over to the next cells. So over many cells
 * each state is shown for as long as it lasted, and short states appear, too. */
int lane_builder_finish(struct lane_builder *builder)
{
	uint64_t known_ns = builder->cell_known_ns;
	enum lane_state most = LANE_DEVICE;

	if (!known_ns)
		return 0;
	for (enum lane_state i = 0; i < LANE_STATES; i++)
		if (builder->owed_ns[i] > builder->owed_ns[most])
			most = i;
	builder->owed_ns[most] -= (int64_t)known_ns;
	builder->cell_known_ns = 0;
	return append(builder, builder->cell_begin_ns, builder->cell_begin_ns + known_ns, most);
}

static int add_to_cells(struct lane_builder *builder, uint64_t begin_ns, uint64_t end_ns,
			enum lane_state state)
{
	while (begin_ns < end_ns) {
		uint64_t cell_begin_ns = begin_ns - begin_ns % builder->cell_ns;
		uint64_t cell_end_ns = cell_begin_ns + builder->cell_ns;
		uint64_t to_ns = end_ns < cell_end_ns ? end_ns : cell_end_ns;

		if (cell_begin_ns != builder->cell_begin_ns) {
			if (lane_builder_finish(builder) < 0)
				return -ENOMEM;
			builder->cell_begin_ns = cell_begin_ns;
		}
		builder->owed_ns[state] += (int64_t)(to_ns - begin_ns);
		builder->cell_known_ns += to_ns - begin_ns;
		begin_ns = to_ns;
	}
	return 0;
}

int lane_builder_add(struct lane_builder *builder, uint64_t begin_ns, uint64_t end_ns, enum lane_state state)
{
	size_t next;

	if (!builder->cell_ns)
		return begin_ns < end_ns ? append(builder, begin_ns, end_ns, state) : 0;
	next = interval_list_from(builder->exact, begin_ns);
	while (begin_ns < end_ns) {
		const struct interval *exact = next < builder->exact->n ? &builder->exact->items[next] : NULL;
		uint64_t to_ns = end_ns;
		int r;

		if (exact && exact->begin_ns <= begin_ns) {
			if (exact->end_ns < to_ns)
				to_ns = exact->end_ns;
			r = lane_builder_finish(builder);
			if (r == 0)
				r = append(builder, begin_ns, to_ns, state);
			next++;
		} else {
			if (exact && exact->begin_ns < to_ns)
				to_ns = exact->begin_ns;
			r = add_to_cells(builder, begin_ns, to_ns, state);
		}
		if (r < 0)
			return r;
		begin_ns = to_ns;
	}
	return 0;
}
