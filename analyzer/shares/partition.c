/* SPDX-License-Identifier: Apache-2.0 */
#include "partition.h"

#include <errno.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "lib/cleanup.h"
#include "analyzer/base/times.h"

/* A share that comes first in the order takes its time out of those that come later. */
static int leave_out(struct interval_list *list, const struct interval_list *const *before, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = interval_list_subtract(list, before[i]);
	return r;
}

static int gpu_waits_find(const struct timeline_thread *trainer, struct interval_list *gpu_waits)
{
	int r = 0;

	for (size_t i = 0; i < trainer->n_gpu_waits && r == 0; i++)
		r = interval_list_add(gpu_waits, trainer->gpu_waits[i].begin_ns,
				      trainer->gpu_waits[i].end_ns);
	interval_list_tidy(gpu_waits);
	return r;
}

static int gil_sleeps_find(const struct roles *roles, struct interval_list *sleeps)
{
	for (size_t i = 0; roles->gil.n && i < roles->trainer->n_offs; i++) {
		const struct timeline_off *off = &roles->trainer->offs[i];

		if (gil_waits(&roles->gil, roles->trainer, off) &&
		    interval_list_add(sleeps, off->begin_ns, off->waking_ns) < 0)
			return -ENOMEM;
	}
	interval_list_tidy(sleeps);
	return 0;
}

/* Finds all lists of the trainer but its checkpoints, which are set already. */
static int trainer_lists_find(struct partition *partition, const struct compiling *compiling,
			      const struct interval_list *waits)
{
	const struct interval_list *const before[] = {waits, &partition->checkpoints, &partition->compiling,
						      &partition->gpu_waits};
	int r = leave_out(&partition->checkpoints, before, 1);

	if (r == 0)
		r = interval_list_append(&partition->compiling, &compiling->trainer);
	if (r == 0)
		r = leave_out(&partition->compiling, before, 2);
	if (r == 0)
		r = gpu_waits_find(partition->roles->trainer, &partition->gpu_waits);
	if (r == 0)
		r = leave_out(&partition->gpu_waits, before, 3);
	if (r == 0)
		r = gil_sleeps_find(partition->roles, &partition->gil_sleeps);
	return r == 0 ? leave_out(&partition->gil_sleeps, before, 4) : r;
}

static int helpers_find(struct partition *partition, const struct compiling *compiling)
{
	const struct timeline *timeline = partition->timeline;
	const struct roles *roles = partition->roles;

	partition->helpers = calloc(timeline->n_threads + 1, sizeof(*partition->helpers));
	if (!partition->helpers)
		return -ENOMEM;
	for (size_t i = 0; i < timeline->n_threads; i++)
		if (roles->of[i] == ROLE_HELPER && &timeline->threads[i] != roles->reader)
			partition->helpers[partition->n_helpers++] = &timeline->threads[i];
	return interval_list_append(&partition->helper_compiling, &compiling->helpers);
}

int partition_init(struct partition *partition, const struct timeline *timeline, const struct roles *roles,
		   const struct data_waits *waits, const struct compiling *compiling,
		   struct interval_list *own_checkpoints, struct interval_list *helper_checkpoints)
{
	_cleanup_(interval_list_free) struct interval_list holes = {0};
	int r;

	*partition = (struct partition){.timeline = timeline,
					.roles = roles,
					.waits = waits,
					.checkpoints = *own_checkpoints,
					.helper_checkpoints = *helper_checkpoints};
	*own_checkpoints = *helper_checkpoints = (struct interval_list){0};
	r = data_waits_intervals(waits, &holes);
	if (r == 0)
		r = trainer_lists_find(partition, compiling, &holes);
	return r == 0 ? helpers_find(partition, compiling) : r;
}

int partition_collectives_take(struct partition *partition, struct interval_list *collectives)
{
	const struct interval_list *const before[] = {&partition->checkpoints, &partition->compiling};
	_cleanup_(interval_list_free) struct interval_list holes = {0};
	int r = data_waits_intervals(partition->waits, &holes);

	interval_list_free(&partition->collectives);
	partition->collectives = *collectives;
	*collectives = (struct interval_list){0};
	if (r == 0)
		r = interval_list_subtract(&partition->collectives, &holes);
	if (r == 0)
		r = leave_out(&partition->collectives, before, 2);
	return r == 0 ? interval_list_subtract(&partition->gil_sleeps, &partition->collectives) : r;
}

void partition_free(struct partition *partition)
{
	interval_list_free(&partition->checkpoints);
	interval_list_free(&partition->helper_checkpoints);
	interval_list_free(&partition->child_checkpoints);
	interval_list_free(&partition->collectives);
	interval_list_free(&partition->compiling);
	interval_list_free(&partition->helper_compiling);
	interval_list_free(&partition->gil_sleeps);
	interval_list_free(&partition->gpu_waits);
	free(partition->helpers);
	*partition = (struct partition){0};
}

/* What the trainer's other threads did from at_ns on: the most telling of their states, and until when all
 * of them stay in theirs. */
static enum timeline_state helpers_at(const struct partition *partition, uint64_t at_ns, uint64_t *end_ns)
{
	enum timeline_state state = STATE_SLEEP;

	for (size_t i = 0; i < partition->n_helpers; i++) {
		struct timeline_piece piece = timeline_piece_at(partition->helpers[i], at_ns, *end_ns);

		*end_ns = piece.end_ns;
		if (piece.state == STATE_CPU || (piece.state == STATE_QUEUE && state != STATE_CPU))
			state = piece.state;
	}
	return state;
}

static bool woken_by_helper(const struct partition *partition, const struct timeline_off *off)
{
	const struct timeline_thread *waker;

	if (!off || !off->waker_tid)
		return false;
	waker = timeline_find(partition->timeline, off->waker_tid, off->waking_ns);
	return waker && waker != partition->roles->trainer &&
	       timeline_same_process(waker, partition->roles->trainer);
}

typedef void partition_part(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t share_ns[SHARE_COUNT]);

/* Each piece of the interval goes to `inside` where the list covers it, else to `outside`. */
static void partition_by(const struct partition *partition, const struct interval_list *list,
			 uint64_t begin_ns, uint64_t end_ns, partition_part *inside, partition_part *outside,
			 uint64_t share_ns[SHARE_COUNT])
{
	uint64_t at_ns = begin_ns;

	for (size_t i = interval_list_from(list, begin_ns); at_ns < end_ns; i++) {
		uint64_t from_ns = i < list->n ? min_ns(list->items[i].begin_ns, end_ns) : end_ns;
		uint64_t to_ns = i < list->n ? min_ns(list->items[i].end_ns, end_ns) : end_ns;

		if (from_ns > at_ns) {
			outside(partition, at_ns, from_ns, share_ns);
			at_ns = from_ns;
		}
		if (to_ns > at_ns)
			inside(partition, at_ns, to_ns, share_ns);
		at_ns = to_ns;
	}
}

static void partition_compiling(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
				uint64_t share_ns[SHARE_COUNT])
{
	share_ns[SHARE_COMPILING] += end_ns - begin_ns;
}

/* Asleep until another of its threads is done. */
static void partition_helped(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			     uint64_t share_ns[SHARE_COUNT])
{
	for (uint64_t at_ns = begin_ns, until_ns; at_ns < end_ns; at_ns = until_ns) {
		enum timeline_state state;

		until_ns = end_ns;
		state = helpers_at(partition, at_ns, &until_ns);
		share_ns[state == STATE_CPU     ? SHARE_DEVICE
			 : state == STATE_QUEUE ? SHARE_CPU_STARVED
						: SHARE_OTHER] += until_ns - at_ns;
		if (state == STATE_CPU && partition->helped_ns)
			*partition->helped_ns += until_ns - at_ns;
	}
}

/* A piece of one sleep, at neither the ranks' meeting nor the interpreter lock. */
static void partition_awaited(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			      uint64_t share_ns[SHARE_COUNT])
{
	const struct timeline_off *off = timeline_piece_at(partition->roles->trainer, begin_ns, end_ns).off;

	/* Only that thread lets the trainer go on, whatever it did meanwhile. */
	if (checkpoint_ends(partition->timeline, partition->saves, off))
		share_ns[SHARE_CHECKPOINT_STALL] += end_ns - begin_ns;
	else if (woken_by_helper(partition, off))
		partition_by(partition, &partition->helper_compiling, begin_ns, end_ns, partition_compiling,
			     partition_helped, share_ns);
	else
		share_ns[SHARE_OTHER] += end_ns - begin_ns;
}

static void partition_locked(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			     uint64_t share_ns[SHARE_COUNT])
{
	share_ns[SHARE_CPU_STARVED] += end_ns - begin_ns;
}

static void partition_unmet(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t share_ns[SHARE_COUNT])
{
	partition_by(partition, &partition->gil_sleeps, begin_ns, end_ns, partition_locked, partition_awaited,
		     share_ns);
}

static void partition_collective(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
				 uint64_t share_ns[SHARE_COUNT])
{
	share_ns[SHARE_DEVICE] += end_ns - begin_ns;
}

/* A piece of one sleep. */
static void partition_sleep(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t share_ns[SHARE_COUNT])
{
	partition_by(partition, &partition->collectives, begin_ns, end_ns, partition_collective,
		     partition_unmet, share_ns);
}

/* Waiting for the GPU, spinning or asleep; a trainer without a core waits for the core instead. */
static void partition_gpu(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			  uint64_t share_ns[SHARE_COUNT])
{
	struct timeline_account account = timeline_account(partition->roles->trainer, begin_ns, end_ns);

	share_ns[SHARE_CPU_STARVED] += account.queue_ns;
	share_ns[SHARE_DEVICE] += end_ns - begin_ns - account.queue_ns;
}

uint64_t partition_gpu_wait(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			    uint64_t *ret_spin_ns)
{
	const struct interval_list *list = &partition->gpu_waits;
	uint64_t wait_ns = 0, spin_ns = 0;

	for (size_t i = interval_list_from(list, begin_ns); i < list->n; i++) {
		uint64_t from_ns = list->items[i].begin_ns, to_ns = min_ns(list->items[i].end_ns, end_ns);
		struct timeline_account account;

		if (from_ns < begin_ns)
			from_ns = begin_ns;
		if (from_ns >= to_ns)
			break;
		account = timeline_account(partition->roles->trainer, from_ns, to_ns);
		wait_ns += to_ns - from_ns - account.queue_ns;
		spin_ns += account.cpu_ns;
	}
	*ret_spin_ns = spin_ns;
	return wait_ns;
}

/* Neither wait, checkpoint nor GPU. */
static void partition_rest(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			   uint64_t share_ns[SHARE_COUNT])
{
	for (uint64_t at_ns = begin_ns; at_ns < end_ns;) {
		struct timeline_piece piece = timeline_piece_at(partition->roles->trainer, at_ns, end_ns);
		uint64_t ns = piece.end_ns - piece.begin_ns;

		switch (piece.state) {
		case STATE_CPU: share_ns[SHARE_DEVICE] += ns; break;
		case STATE_QUEUE: share_ns[SHARE_CPU_STARVED] += ns; break;
		case STATE_SLEEP:
		case STATE_BLOCK: partition_sleep(partition, piece.begin_ns, piece.end_ns, share_ns); break;
		case STATE_UNKNOWN: share_ns[SHARE_OTHER] += ns; break;
		}
		at_ns = piece.end_ns;
	}
}

static void partition_checkpoint(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
				 uint64_t share_ns[SHARE_COUNT])
{
	share_ns[SHARE_CHECKPOINT_STALL] += end_ns - begin_ns;
}

static void partition_driver(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			     uint64_t share_ns[SHARE_COUNT])
{
	partition_by(partition, &partition->gpu_waits, begin_ns, end_ns, partition_gpu, partition_rest,
		     share_ns);
}

static void partition_unsaved(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			      uint64_t share_ns[SHARE_COUNT])
{
	partition_by(partition, &partition->compiling, begin_ns, end_ns, partition_compiling,
		     partition_driver, share_ns);
}

static void partition_busy(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			   uint64_t share_ns[SHARE_COUNT])
{
	partition_by(partition, &partition->checkpoints, begin_ns, end_ns, partition_checkpoint,
		     partition_unsaved, share_ns);
}

uint64_t partition_collective_ns(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns)
{
	return interval_list_cover(&partition->collectives, begin_ns, end_ns);
}

uint64_t partition_gil_ns(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns)
{
	return interval_list_cover(&partition->gil_sleeps, begin_ns, end_ns);
}

static void partition_wait(const struct partition *partition, size_t wait, uint64_t ns,
			   uint64_t share_ns[SHARE_COUNT])
{
	uint64_t whole_ns = partition->waits->items[wait].end_ns - partition->waits->items[wait].begin_ns;
	uint64_t fetch_ns = partition->fetch_ns[wait];

	if (ns < whole_ns) /* cut at the interval's edge */
		fetch_ns = (uint64_t)((double)fetch_ns * ((double)ns / (double)whole_ns));
	fetch_ns = min_ns(fetch_ns, ns);
	share_ns[SHARE_FETCH_STALL] += fetch_ns;
	share_ns[SHARE_PREP_STALL] += ns - fetch_ns;
}

void partition_interval(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			uint64_t share_ns[SHARE_COUNT])
{
	const struct data_waits *waits = partition->waits;
	uint64_t at_ns = begin_ns;

	for (size_t i = data_waits_from(waits, begin_ns); at_ns < end_ns; i++) {
		uint64_t from_ns = i < waits->n ? min_ns(waits->items[i].begin_ns, end_ns) : end_ns;
		uint64_t to_ns = i < waits->n ? min_ns(waits->items[i].end_ns, end_ns) : end_ns;

		if (from_ns > at_ns) {
			partition_busy(partition, at_ns, from_ns, share_ns);
			at_ns = from_ns;
		}
		if (to_ns > at_ns)
			partition_wait(partition, i, to_ns - at_ns, share_ns);
		at_ns = to_ns;
	}
}

void partition_fetch(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
		     uint64_t share_ns[SHARE_COUNT])
{
	const struct data_waits *waits = partition->waits;

	share_ns[SHARE_FETCH_STALL] = share_ns[SHARE_PREP_STALL] = 0;
	for (size_t i = data_waits_from(waits, begin_ns); i < waits->n; i++) {
		uint64_t from_ns = waits->items[i].begin_ns > begin_ns ? waits->items[i].begin_ns : begin_ns;
		uint64_t to_ns = min_ns(waits->items[i].end_ns, end_ns);

		if (from_ns >= end_ns)
			break;
		partition_wait(partition, i, to_ns - from_ns, share_ns);
	}
}
