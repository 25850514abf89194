/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes_find.h"

#include <errno.h>

#include "analyzer/analysis.h"
#include "calls.h"
#include "lib/array.h"
#include "partition.h"
#include "roles.h"
#include "split.h"
#include "waits.h"
#include "walk.h"
#include "times.h"

/* Outside of data waits: returns the end of what begins at begin_ns, a stretch on or off the CPU, cut where a
 * checkpoint, compiling or a call that waits for the GPU begins or ends. */
static uint64_t working_end(const struct study *study, uint64_t begin_ns, uint64_t end_ns, bool *ret_gpu)
{
	const struct interval_list *cuts[] = {&study->partition->checkpoints, &study->partition->compiling,
					      &study->partition->gpu_waits};
	bool within[3] = {false, false, false};

	end_ns = timeline_piece_at(study->roles->trainer, begin_ns, end_ns).end_ns;
	for (size_t i = 0; i < 3; i++) {
		size_t next = interval_list_from(cuts[i], begin_ns);

		if (next == cuts[i]->n)
			continue;
		within[i] = cuts[i]->items[next].begin_ns <= begin_ns;
		end_ns =
		    min_ns(end_ns, within[i] ? cuts[i]->items[next].end_ns : cuts[i]->items[next].begin_ns);
	}
	*ret_gpu = within[2];
	return end_ns;
}

static int add_working(const struct study *study, uint64_t begin_ns, uint64_t end_ns,
		       struct lane_builder *builder)
{
	while (begin_ns < end_ns) {
		uint64_t share_ns[SHARE_COUNT] = {0};
		enum analysis_share most = SHARE_DEVICE;
		bool gpu;
		uint64_t to_ns = working_end(study, begin_ns, end_ns, &gpu);

		partition_interval(study->partition, begin_ns, to_ns, share_ns);
		for (enum analysis_share i = 0; i < SHARE_COUNT; i++)
			if (share_ns[i] > share_ns[most])
				most = i;
		if (lane_builder_add(builder, begin_ns, to_ns,
				     gpu && most == SHARE_DEVICE ? LANE_GPU_WAIT
								 : lane_state_of_share(most)) < 0)
			return -ENOMEM;
		begin_ns = to_ns;
	}
	return 0;
}

/* With an inline loader the calls tell when it fetched. Else only the amount is known, which is drawn at the
 * start of the wait. */
static int add_wait(const struct study *study, size_t i, uint64_t begin_ns, uint64_t end_ns,
		    struct lane_builder *builder)
{
	const struct interval_list *calls = &study->waits->file_calls;
	uint64_t fetch_end_ns = study->waits->items[i].begin_ns + study->split->fetch_ns[i];
	int r = 0;

	if (study->waits->loader != LOADER_INLINE) {
		fetch_end_ns = min_ns(max_ns(fetch_end_ns, begin_ns), end_ns);
		if (lane_builder_add(builder, begin_ns, fetch_end_ns, LANE_FETCH_STALL) < 0)
			return -ENOMEM;
		return lane_builder_add(builder, fetch_end_ns, end_ns, LANE_PREP_STALL);
	}
	for (size_t k = interval_list_from(calls, begin_ns); r == 0 && k < calls->n; k++) {
		uint64_t from_ns = min_ns(max_ns(calls->items[k].begin_ns, begin_ns), end_ns);
		uint64_t to_ns = min_ns(calls->items[k].end_ns, end_ns);

		r = lane_builder_add(builder, begin_ns, from_ns, LANE_PREP_STALL);
		if (r == 0)
			r = lane_builder_add(builder, from_ns, to_ns, LANE_FETCH_STALL);
		begin_ns = max_ns(begin_ns, to_ns);
		if (begin_ns >= end_ns)
			break;
	}
	return r == 0 ? lane_builder_add(builder, begin_ns, end_ns, LANE_PREP_STALL) : r;
}

int lane_of_trainer(const struct study *study, uint64_t begin_ns, uint64_t end_ns,
		    struct lane_builder *builder)
{
	const struct data_waits *waits = study->waits;
	int r = 0;

	for (size_t i = data_waits_from(waits, begin_ns); r == 0 && i < waits->n; i++) {
		uint64_t from_ns = max_ns(waits->items[i].begin_ns, begin_ns);
		uint64_t to_ns = min_ns(waits->items[i].end_ns, end_ns);

		if (from_ns >= end_ns)
			break;
		r = add_working(study, begin_ns, from_ns, builder);
		if (r == 0)
			r = add_wait(study, i, from_ns, to_ns, builder);
		begin_ns = to_ns;
	}
	return r == 0 ? add_working(study, begin_ns, end_ns, builder) : r;
}

static bool awaits_work(const struct study *study, const struct timeline_thread *thread, enum lane_role role,
			uint64_t at_ns)
{
	const struct timeline_call *call;

	if (role != LANE_WORKER)
		return true; /* the others only ever wait for something to hand over, write or compute */
	call = timeline_call_at(thread, at_ns);
	return call && (call_is_pipe_poll(call) || call_is_pipe_read(call)) &&
	       !roles_is_result(study->roles, call->inode);
}

/* Adds a stretch on a CPU, cut where calls fetch. */
static int add_running(const struct timeline_thread *thread, enum role role, struct timeline_piece piece,
		       struct lane_builder *builder)
{
	uint64_t at_ns = piece.begin_ns;

	for (size_t i = timeline_call_from(thread, at_ns); i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		uint64_t from_ns = max_ns(call->begin_ns, at_ns), to_ns = min_ns(call->end_ns, piece.end_ns);

		if (from_ns >= piece.end_ns)
			break;
		if (from_ns >= to_ns || !walk_fetch_calls(thread, role, from_ns, to_ns))
			continue;
		if (lane_builder_add(builder, at_ns, from_ns, LANE_CPU) < 0 ||
		    lane_builder_add(builder, from_ns, to_ns, LANE_FETCH) < 0)
			return -ENOMEM;
		at_ns = to_ns;
	}
	return lane_builder_add(builder, at_ns, piece.end_ns, LANE_CPU);
}

int lane_of_thread(const struct study *study, const struct timeline_thread *thread, enum lane_role role,
		   uint64_t begin_ns, uint64_t end_ns, struct lane_builder *builder)
{
	enum role job_role = role_of(study->timeline, study->roles, thread);
	int r = 0;

	while (r == 0 && begin_ns < end_ns) {
		struct timeline_piece piece = timeline_piece_at(thread, begin_ns, end_ns);
		enum lane_state state = LANE_BLOCKED;

		switch (piece.state) {
		case STATE_UNKNOWN: break;
		case STATE_CPU: r = add_running(thread, job_role, piece, builder); break;
		case STATE_QUEUE:
			r = lane_builder_add(builder, piece.begin_ns, piece.end_ns, LANE_QUEUE);
			break;
		case STATE_SLEEP:
		case STATE_BLOCK:
			if ((piece.off->flags & EVENT_FLAG_MAJOR_FAULT) ||
			    walk_fetching(thread, job_role, piece.off->begin_ns))
				state = LANE_FETCH;
			else if (awaits_work(study, thread, role, piece.off->begin_ns))
				state = LANE_IDLE;
			r = lane_builder_add(builder, piece.begin_ns, piece.end_ns, state);
			break;
		}
		begin_ns = piece.end_ns;
	}
	return r;
}

static int batch_add(struct lane *lane, size_t *n_allocated, uint64_t begin_ns, uint64_t end_ns)
{
	if (begin_ns >= end_ns)
		return 0;
	if (array_room(lane->batches, lane->n_batches, *n_allocated) < 0)
		return -ENOMEM;
	lane->batches[lane->n_batches++] = (struct lane_batch){begin_ns, end_ns};
	return 0;
}

/* From the read of an index to the next look for one. */
int lane_batches(const struct study *study, const struct timeline_thread *worker, uint64_t begin_ns,
		 uint64_t end_ns, struct lane *lane)
{
	size_t n_allocated = lane->n_batches; /* more may be allocated: then it only grows once too often */
	uint64_t taken_ns = 0;

	for (size_t i = timeline_call_from(worker, begin_ns); i < worker->n_calls; i++) {
		const struct timeline_call *call = &worker->calls[i];
		bool reads = call_is_pipe_read(call);

		if (call->begin_ns >= end_ns)
			break;
		if ((!reads && !call_is_pipe_poll(call)) || roles_is_result(study->roles, call->inode))
			continue;
		/* An index comes as header and payload, two reads without work in between. */
		if (taken_ns && !reads && batch_add(lane, &n_allocated, taken_ns, call->begin_ns) < 0)
			return -ENOMEM;
		taken_ns = reads && call->result > 0 ? call->end_ns : 0;
	}
	return 0;
}
