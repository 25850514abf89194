/* SPDX-License-Identifier: Apache-2.0 */
#include "partition.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "checkpoint.h"
#include "lib/cleanup.h"
#include "analyzer/base/times.h"

/* Removes the time of earlier shares in the order from later ones. */
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

/* An interval of the trainer's time. Each query of a state narrows end_ns to the time for which the state
 * stays the same. */
struct moment {
	const struct partition *partition;
	uint64_t at_ns, end_ns;
	struct timeline_piece piece; /* end_ns 0: not determined yet */
	struct timeline_piece
	    helpers; /* most significant state of its other threads; end_ns 0: not determined yet */
};

static const struct timeline_piece *piece_of(struct moment *m)
{
	if (!m->piece.end_ns)
		m->piece = timeline_piece_at(m->partition->roles->trainer, m->at_ns, m->end_ns);
	m->end_ns = min_ns(m->end_ns, m->piece.end_ns);
	return &m->piece;
}

static bool is_without_core(struct moment *m)
{
	return piece_of(m)->state == STATE_QUEUE;
}

static bool is_on_core(struct moment *m)
{
	return piece_of(m)->state == STATE_CPU;
}

static bool is_unknown(struct moment *m)
{
	return piece_of(m)->state == STATE_UNKNOWN;
}

/* Only the thread that ended the sleep matters, whatever its state during the sleep. */
static bool is_ended_by_saver(struct moment *m)
{
	return checkpoint_ends(m->partition->timeline, m->partition->saves, piece_of(m)->off);
}

static bool is_woken_by_stranger(struct moment *m)
{
	const struct partition *p = m->partition;
	const struct timeline_thread *waker = timeline_waker(p->timeline, piece_of(m)->off);

	return !waker || waker == p->roles->trainer || !timeline_same_process(waker, p->roles->trainer);
}

static enum timeline_state helpers_state(struct moment *m)
{
	const struct partition *p = m->partition;
	enum timeline_state state = STATE_SLEEP;

	if (m->helpers.end_ns)
		return m->helpers.state;
	for (size_t i = 0; i < p->n_helpers; i++) {
		struct timeline_piece piece = timeline_piece_at(p->helpers[i], m->at_ns, m->end_ns);

		m->end_ns = piece.end_ns;
		if (piece.state == STATE_CPU || (piece.state == STATE_QUEUE && state != STATE_CPU))
			state = piece.state;
	}
	m->helpers = (struct timeline_piece){.state = state, .end_ns = m->end_ns};
	return state;
}

static bool is_helped(struct moment *m)
{
	return helpers_state(m) == STATE_CPU;
}

static bool is_helper_without_core(struct moment *m)
{
	return helpers_state(m) == STATE_QUEUE;
}

#define LIST(member) offsetof(struct partition, member)

/* Assigns a moment outside of data waits to a share: the first row that claims it wins, by its list of
 * intervals or else by its test. Without a row the share is other. Rows after those that test the state apply
 * only to a sleeping trainer. */
static const struct claim {
	size_t list;
	bool (*is)(struct moment *m);
	enum analysis_share share;
} claims[] = {
    {LIST(checkpoints), NULL, SHARE_CHECKPOINT_STALL},
    {LIST(compiling), NULL, SHARE_COMPILING},
    {0, is_without_core, SHARE_CPU_STARVED},
    {LIST(gpu_waits), NULL, SHARE_DEVICE},
    {0, is_on_core, SHARE_DEVICE},
    {0, is_unknown, SHARE_OTHER},
    {LIST(collectives), NULL, SHARE_DEVICE},
    {LIST(gil_sleeps), NULL, SHARE_CPU_STARVED},
    {0, is_ended_by_saver, SHARE_CHECKPOINT_STALL},
    {0, is_woken_by_stranger, SHARE_OTHER},
    {LIST(helper_compiling), NULL, SHARE_COMPILING},
    {0, is_helped, SHARE_DEVICE},
    {0, is_helper_without_core, SHARE_CPU_STARVED},
};

#define N_CLAIMS (sizeof(claims) / sizeof(claims[0]))

static const struct interval_list *list_of(const struct partition *partition, const struct claim *claim)
{
	return (const struct interval_list *)((const char *)partition + claim->list);
}

/* *next: the first interval of the list that does not end before the moment. */
static bool list_covers(const struct interval_list *list, size_t *next, struct moment *m)
{
	const struct interval *item;

	while (*next < list->n && list->items[*next].end_ns <= m->at_ns)
		++*next;
	if (*next == list->n)
		return false;
	item = &list->items[*next];
	if (item->begin_ns > m->at_ns) {
		m->end_ns = min_ns(m->end_ns, item->begin_ns);
		return false;
	}
	m->end_ns = min_ns(m->end_ns, item->end_ns);
	return true;
}

static void partition_busy(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			   uint64_t share_ns[SHARE_COUNT])
{
	size_t next[N_CLAIMS];

	for (size_t i = 0; i < N_CLAIMS; i++)
		next[i] = claims[i].is ? 0 : interval_list_from(list_of(partition, &claims[i]), begin_ns);
	while (begin_ns < end_ns) {
		struct moment m = {.partition = partition, .at_ns = begin_ns, .end_ns = end_ns};
		size_t i = 0;

		while (i < N_CLAIMS &&
		       !(claims[i].is ? claims[i].is(&m)
				      : list_covers(list_of(partition, &claims[i]), &next[i], &m)))
			i++;
		share_ns[i < N_CLAIMS ? claims[i].share : SHARE_OTHER] += m.end_ns - begin_ns;
		if (i < N_CLAIMS && claims[i].is == is_helped && partition->helped_ns)
			*partition->helped_ns += m.end_ns - begin_ns;
		begin_ns = m.end_ns;
	}
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

static uint64_t sum_of(const uint64_t share_ns[SHARE_COUNT])
{
	uint64_t sum_ns = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		sum_ns += share_ns[i];
	return sum_ns;
}

void partition_interval(const struct partition *partition, uint64_t begin_ns, uint64_t end_ns,
			uint64_t share_ns[SHARE_COUNT])
{
	const struct data_waits *waits = partition->waits;
	uint64_t at_ns = begin_ns, before_ns __attribute__((unused)) = sum_of(share_ns);

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
	assert(sum_of(share_ns) - before_ns == end_ns - begin_ns);
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
