/* SPDX-License-Identifier: Apache-2.0 */
/* What a session delivers next, and which chunks that takes, in the order of dataset/shuffle.h. */
#include "session.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "dataset/subset.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/minmax.h"
#include "lib/sorted.h"
#include "daemon/cache/peers/sharers.h"

/* Its order in that epoch. */
static void session_spec(const struct session *s, uint64_t epoch, struct shuffle_spec *ret)
{
	const struct wire_open_session *q = &s->request;

	*ret = (struct shuffle_spec){.start = epoch == q->epoch ? q->start : 0,
				     .chunk_samples = s->chunk_samples,
				     .n_chunks = s->dataset->info.n_chunks,
				     .subset = s->subset,
				     .seed = q->seed,
				     .epoch = epoch,
				     .window_chunks = q->window_chunks,
				     .shuffle = q->flags & DIESEL_SHUFFLE,
				     .rank = q->rank,
				     .world = q->world,
				     .batch = q->batch,
				     .lanes = q->lanes,
				     .drift = q->drift,
				     .base = s->dataset->base,
				     .drop_last = q->flags & DIESEL_DROP_LAST};
}

static int plan_new(const struct session *s, uint64_t epoch, struct shuffle_plan **ret)
{
	struct shuffle_spec spec;

	session_spec(s, epoch, &spec);
	return shuffle_plan_new(&spec, ret);
}

void session_drop_cursor(struct session *s)
{
	if (s->has_cursor)
		cached_drop_cursor(s->dataset, &s->cursor);
	s->has_cursor = false;
}

/* The plan of an epoch. Two are kept, because reading ahead goes on into the next epoch. */
static struct shuffle_plan *plan_of(struct session *s, uint64_t epoch)
{
	struct epoch_plan *p = &s->plans[epoch & 1];
	struct shuffle_plan *plan;

	if (p->plan && p->epoch == epoch)
		return p->plan;
	if (plan_new(s, epoch, &plan) < 0)
		return NULL;
	session_drop_cursor(s); /* it may be in the order that goes */
	shuffle_plan_free(p->plan);
	free(p->turns);
	free(p->visits);
	*p = (struct epoch_plan){.epoch = epoch, .plan = plan};
	return s->exact && session_note_plan(s, p) < 0 ? NULL : plan;
}

int session_count_samples(struct session *s, struct error *err)
{
	const struct snapshot_info *info = &s->dataset->info;

	s->n_samples = s->subset ? subset_count(s->subset) : info->n_samples;
	s->n_chunks = s->subset ? 0 : info->n_chunks;
	s->chunk_samples = calloc(info->n_chunks, sizeof(*s->chunk_samples));
	if (!s->chunk_samples)
		return error_errno(err, -ENOMEM, "cannot open the session");
	for (uint64_t i = 0; i < info->n_chunks; i++) {
		struct snapshot_chunk chunk;
		int r = snapshot_chunk_get(s->dataset->snapshot, i, &chunk);

		if (r < 0)
			return error_errno(err, r, "%s: chunk table", s->dataset->path);
		s->chunk_samples[i] = chunk.n_samples;
		if (s->subset && subset_count_range(s->subset, chunk.first_sample,
						    chunk.first_sample + chunk.n_samples) > 0)
			s->n_chunks++;
	}
	return 0;
}

int session_plan_init(struct session *s, struct error *err)
{
	struct shuffle_plan *plan;
	int r;

	s->stamps = calloc(s->dataset->info.n_chunks, sizeof(*s->stamps));
	if (s->request.flags & DIESEL_ASKED)
		return s->stamps ? 0 : error_errno(err, -ENOMEM, "cannot open the session");
	s->samples = calloc(s->batch, sizeof(*s->samples));
	s->windows_of_head = calloc(s->batch, sizeof(*s->windows_of_head));
	s->windows_of_next = calloc(s->batch, sizeof(*s->windows_of_next));
	s->lanes = calloc(max_u64(s->request.lanes, 1), sizeof(*s->lanes));
	if (!s->stamps || !s->samples || !s->windows_of_head || !s->windows_of_next || !s->lanes)
		return error_errno(err, -ENOMEM, "cannot open the session");
	r = s->request.lanes > 1 ? cached_list_base(s->dataset) : 0;
	if (r < 0)
		return error_errno(err, r, "cannot list the chunks of %s", s->dataset->path);
	r = plan_new(s, s->request.epoch, &plan);
	if (r < 0)
		return error_errno(err, r, "cannot plan the order of %s", s->dataset->path);
	s->plans[s->request.epoch & 1] = (struct epoch_plan){.epoch = s->request.epoch, .plan = plan};
	return 0;
}

void session_join_lanes(struct session *s)
{
	const struct shuffle_plan *plan = s->plans[s->epoch & 1].plan;
	struct shuffle_spec spec;
	uint64_t first = s->request.rank, end = first + 1;

	if (!s->sharer || s->request.lanes <= 1 || (!plan && !s->is_warm))
		return;
	if (plan)
		shuffle_rank_lanes(plan, &first, &end);
	else if (cached_list_base(s->dataset) < 0)
		return; /* it has the chunks that it has without lanes */
	session_spec(s, s->epoch, &spec);
	spec.shuffle |= s->is_warm; /* as the jobs that come */
	sharer_join_lanes(s->sharer, &spec, first, end);
}

void session_plan_free(struct session *s)
{
	session_drop_cursor(s);
	for (int i = 0; i < 2; i++) {
		shuffle_plan_free(s->plans[i].plan);
		free(s->plans[i].turns);
		free(s->plans[i].visits);
	}
	subset_free(s->subset);
	free(s->chunk_samples);
	free(s->stamps);
	free(s->samples);
	free(s->windows_of_head);
	free(s->windows_of_next);
	free(s->lanes);
	free(s->ahead);
	free(s->asked);
	free(s->elsewhere);
}

uint64_t session_first_index(const struct session *s, uint64_t epoch, uint64_t batch)
{
	uint64_t offset = s->request.offset, stride = s->request.stride;

	if (epoch == s->request.epoch && batch < s->start_batch)
		batch = s->start_batch;
	if (batch <= offset)
		return offset;
	if (batch >= s->n_batches)
		return batch;
	return offset + (batch - offset + stride - 1) / stride * stride;
}

void session_set_head(struct session *s, const uint64_t *samples, uint32_t n)
{
	if (++s->stamp == 0) {
		memset(s->stamps, 0, s->dataset->info.n_chunks * sizeof(*s->stamps));
		s->stamp = 1;
	}
	s->head.epoch = s->epoch;
	s->head.index = s->index;
	batch_set_samples(&s->head, s->dataset, samples, n, s->stamps, s->stamp);
	s->has_head = true;
}

bool session_prepare_head(struct session *s)
{
	struct shuffle_plan *plan;
	uint32_t n = 0;

	if (s->asked)
		return session_prepare_asked(s);
	if (s->request.offset >= s->n_batches)
		return false;
	if (s->index >= s->n_batches) {
		s->epoch++;
		s->index = session_first_index(s, s->epoch, 0);
	}
	plan = plan_of(s, s->epoch);
	if (!plan || shuffle_batch(plan, s->index, s->samples, &n) < 0)
		return false;
	assert(n <= s->batch);
	session_set_head(s, s->samples, n);
	if (s->exact)
		session_check_head(s);
	sharer_go_on(s->sharer, s->epoch);
	s->index += s->request.stride;
	session_update_ahead(s);
	return true;
}

bool session_ahead_push(struct session *s, uint64_t chunk)
{
	if (array_room(s->ahead, s->n_ahead, s->size_ahead) < 0)
		return false;
	s->ahead[s->n_ahead++] = (uint32_t)chunk;
	return true;
}

static void push_window(struct session *s, const struct shuffle_plan *plan, uint64_t window)
{
	uint64_t visit, end;

	for (shuffle_window_visits(plan, window, &visit, &end); visit < end; visit++) {
		if (!session_ahead_push(s, shuffle_chunk_visit(plan, visit)))
			return;
	}
}

/* Lists those of n windows that are not listed yet. */
static void push_windows(struct session *s, const struct shuffle_plan *plan, const uint64_t *windows,
			 uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct session_lane *lane = &s->lanes[shuffle_window_lane(plan, windows[i])];

		if (windows[i] < lane->listed)
			continue;
		push_window(s, plan, windows[i]);
		lane->listed = windows[i] + 1;
	}
}

static void nothing_is_listed(struct session *s, const struct shuffle_plan *plan)
{
	for (uint64_t l = 0; l < shuffle_n_lanes(plan); l++)
		s->lanes[l].listed = 0;
}

/* Counts head's windows, which are being read now, as visited. */
static void count_visits(struct session *s, const struct shuffle_plan *plan)
{
	uint64_t visit, end;

	for (uint64_t l = 0; s->visited_epoch != s->head.epoch && l < shuffle_n_lanes(plan); l++)
		s->lanes[l].visited = 0;
	s->visited_epoch = s->head.epoch;
	for (uint32_t i = 0; i < s->n_of_head; i++) {
		uint64_t w = s->windows_of_head[i];
		struct session_lane *lane = &s->lanes[shuffle_window_lane(plan, w)];

		if (w < lane->visited)
			continue;
		shuffle_window_visits(plan, w, &visit, &end);
		s->n_visited += end - visit;
		s->job->counters.chunk_visits += end - visit;
		lane->visited = w + 1;
	}
}

/* ---- its place among all visits, where chunks go for others ---- */

struct window_place {
	uint64_t place, window;
};

static int by_place(const void *a, const void *b)
{
	const struct window_place *x = a, *y = b;
	int order = compare_numbers(x->place, y->place);

	return order ? order : compare_numbers(x->window, y->window);
}

/* Counts the visits of the session's lanes that come before each window, with drift also before those of
 * other lanes. All lanes go on at one pace. -ENOMEM. */
static int find_turns(struct epoch_plan *p, bool drifts)
{
	uint64_t n_windows = shuffle_n_windows(p->plan), n = 0, first = 0, end_lane, w, end, visit, end_visit;
	uint64_t lane = 0, n_lanes = shuffle_n_lanes(p->plan);
	_cleanup_(freep) struct window_place *order = reallocarray(NULL, n_windows + 1, sizeof(*order));
	_cleanup_(freep) uint32_t *turns = reallocarray(NULL, n_windows + 1, sizeof(*turns));

	if (!order || !turns)
		return -ENOMEM;
	for (w = 0; w < n_windows; w++)
		turns[w] = POLICY_NEVER;
	shuffle_rank_lanes(p->plan, &first, &end_lane);
	if (!drifts) {
		lane = first;
		n_lanes = end_lane;
	}
	for (; lane < n_lanes; lane++) {
		for (shuffle_lane_windows(p->plan, lane, &w, &end); w < end; w++)
			order[n++] = (struct window_place){shuffle_window_place(p->plan, w), w};
	}
	qsort(order, n, sizeof(*order), by_place);
	p->n_visits = 0;
	for (uint64_t i = 0; i < n; i++) {
		turns[order[i].window] = p->n_visits;
		lane = shuffle_window_lane(p->plan, order[i].window);
		if (lane < first || lane >= end_lane)
			continue;
		shuffle_window_visits(p->plan, order[i].window, &visit, &end_visit);
		p->n_visits += (uint32_t)(end_visit - visit);
	}
	p->turns = steal_pointer(turns);
	return 0;
}

/* Sets a chunk's visit; of a chunk in two lanes the later one. */
static void note_visit(struct epoch_plan *p, uint64_t chunk, uint32_t turn)
{
	if (p->visits[chunk] == POLICY_NEVER || turn > p->visits[chunk])
		p->visits[chunk] = turn;
}

/* Finds which visit of the epoch each chunk of the session's lanes is. A chunk that has left for another
 * node's lane counts as needed when its turn comes there. NULL: without memory. */
static const struct epoch_plan *visits_of(struct session *s, uint64_t epoch)
{
	const struct shuffle_plan *plan = plan_of(s, epoch);
	struct epoch_plan *p = &s->plans[epoch & 1];
	uint64_t n_chunks = s->dataset->info.n_chunks, visit, end, first, end_lane;

	if (!plan || p->visits)
		return plan ? p : NULL;
	if (!p->turns && find_turns(p, s->request.drift > 0) < 0)
		return NULL;
	p->visits = reallocarray(NULL, n_chunks, sizeof(*p->visits));
	if (!p->visits)
		return NULL;
	for (uint64_t i = 0; i < n_chunks; i++)
		p->visits[i] = POLICY_NEVER;
	shuffle_rank_lanes(plan, &first, &end_lane);
	for (uint64_t w = 0; w < shuffle_n_windows(plan); w++) {
		uint32_t turn = p->turns[w];
		uint64_t lane = shuffle_window_lane(plan, w);
		bool own = lane >= first && lane < end_lane;

		if (turn == POLICY_NEVER)
			continue;
		for (shuffle_window_visits(plan, w, &visit, &end); visit < end; visit++) {
			uint64_t chunk = shuffle_chunk_visit(plan, visit);

			if (own)
				note_visit(p, chunk, turn++);
			else if (sharer_has_left(s->sharer, epoch, chunk))
				note_visit(p, chunk, turn);
		}
	}
	return p;
}

/* The first visit of head's windows. */
static uint32_t turn_of_head(const struct session *s, const struct epoch_plan *p)
{
	uint32_t at = POLICY_NEVER;

	for (uint32_t i = 0; i < s->n_of_head; i++) {
		uint32_t turn = p->turns[s->windows_of_head[i]];

		if (turn < at)
			at = turn;
	}
	return at < p->n_visits ? at : p->n_visits;
}

/* Says where head is in the order, if chunks go for others: a dataset that fits does without. */
static void update_cursor(struct session *s)
{
	uint64_t epoch = s->head.epoch;
	struct cached_cursor *k = &s->cursor;
	const struct epoch_plan *now, *then;
	struct policy_cursor place;

	if (!s->dataset->evicts)
		return;
	/* What the next epoch needs is reserved when its turn comes. */
	then = s->exact ? NULL : visits_of(s, epoch + 1);
	now = visits_of(s, epoch);
	if (!now) {
		session_drop_cursor(s);
		return;
	}
	place = (struct policy_cursor){.now = now->visits,
				       .then = then ? then->visits : NULL,
				       .n_visits = now->n_visits,
				       .at = turn_of_head(s, now)};
	if (s->has_cursor && k->epoch == epoch && k->place.at == place.at)
		return;
	session_drop_cursor(s);
	*k = (struct cached_cursor){.place = place,
				    .seed = s->request.seed,
				    .epoch = epoch,
				    .whole = !s->subset,
				    .shuffled = s->request.flags & DIESEL_SHUFFLE,
				    .lanes = s->request.lanes,
				    .drift = s->request.drift};
	shuffle_rank_lanes(now->plan, &k->first_lane, &k->end_lane);
	cached_add_cursor(s->dataset, k);
	s->has_cursor = true;
}

/* Finds head's windows, and whether they are other ones than those that `ahead` was made for. */
static bool find_windows(struct session *s, const struct shuffle_plan *plan, bool *ret_changed)
{
	uint64_t *windows = s->windows_of_next;
	uint32_t n;

	if (shuffle_batch_windows(plan, s->head.index, windows, &n) < 0)
		return false;
	*ret_changed = s->ahead_epoch != s->head.epoch || n != s->n_of_head ||
		       memcmp(windows, s->windows_of_head, n * sizeof(*windows)) != 0;
	s->windows_of_next = s->windows_of_head;
	s->windows_of_head = windows;
	s->n_of_head = n;
	return true;
}

/*
 * Lists the chunks of the windows of head and of the batches after it, until there are prefetch_chunks more
 * than head's own, or as many as storage needs so as not to be late; into the next epoch, but no further.
 * Windows that no batch of this session touches are left out, and so is what is kept for it (group.h).
 */
void session_update_ahead(struct session *s)
{
	uint32_t prefetch = s->prefetch_chunks, most = prefetch, own, n;
	uint64_t epoch = s->head.epoch, index = s->head.index, kept = group_kept_run(s) / s->request.stride;
	struct shuffle_plan *plan = plan_of(s, epoch);
	bool changed;

	if (!plan || !find_windows(s, plan, &changed))
		return;
	update_cursor(s);
	if (s->n_ahead > 0 && !changed && s->ahead_prefetch == prefetch && (kept > 0 || !s->ahead_kept))
		return;
	count_visits(s, plan);
	if (s->dataset->evicts) {
		session_note_pace(s, s->n_visited, clock_monotonic_ns());
		most = session_far_most(s);
	}
	s->n_ahead = 0;
	s->ahead_epoch = epoch;
	s->ahead_prefetch = prefetch;
	s->ahead_kept = kept > 0;
	if (kept > (s->n_batches - index) / s->request.stride) /* the rest of the epoch */
		return;
	nothing_is_listed(s, plan);
	if (kept > 0)
		index += (kept - 1) * s->request.stride;
	else
		push_windows(s, plan, s->windows_of_head, s->n_of_head);
	own = s->n_ahead;
	while (s->n_ahead - own < most) {
		index += s->request.stride;
		if (index >= s->n_batches) {
			if (epoch > s->head.epoch)
				break;
			epoch++;
			index = session_first_index(s, epoch, 0);
			plan = plan_of(s, epoch);
			if (plan)
				nothing_is_listed(s, plan);
		}
		if (!plan || shuffle_batch_windows(plan, index, s->windows_of_next, &n) < 0)
			break;
		push_windows(s, plan, s->windows_of_next, n);
	}
	if (s->n_ahead > own + most)
		s->n_ahead = own + most;
	if (s->dataset->evicts)
		s->n_ahead = session_far_ahead(s, own);
}
