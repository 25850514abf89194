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
#include "lib/clock.h"

void session_spec(const struct session *s, uint64_t epoch, struct shuffle_spec *ret)
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
	if (!s->stamps || !s->samples)
		return error_errno(err, -ENOMEM, "cannot open the session");
	r = plan_new(s, s->request.epoch, &plan);
	if (r < 0)
		return error_errno(err, r, "cannot plan the order of %s", s->dataset->path);
	s->plans[s->request.epoch & 1] = (struct epoch_plan){.epoch = s->request.epoch, .plan = plan};
	return 0;
}

void session_plan_free(struct session *s)
{
	session_drop_cursor(s);
	session_needs_leave(s);
	for (int i = 0; i < 2; i++) {
		shuffle_plan_free(s->plans[i].plan);
		free(s->plans[i].visits);
	}
	subset_free(s->subset);
	free(s->chunk_samples);
	free(s->stamps);
	free(s->samples);
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

/* The windows that a batch touches. */
static bool batch_windows(struct shuffle_plan *plan, uint64_t index, uint64_t *ret_first, uint64_t *ret_last)
{
	uint64_t position;
	uint32_t n;

	if (shuffle_batch_range(plan, index, &position, &n) < 0 || n == 0)
		return false;
	*ret_first = shuffle_window_of(plan, position);
	*ret_last = shuffle_window_of(plan, position + n - 1);
	return true;
}

static void push_window(struct session *s, const struct shuffle_plan *plan, uint64_t epoch, uint64_t window)
{
	uint64_t g = s->request.window_chunks;

	session_needs_push(s, epoch, window);

	for (uint64_t i = window * g; i < (window + 1) * g && i < s->n_chunks; i++) {
		if (!session_ahead_push(s, shuffle_chunk_visit(plan, i)))
			return;
	}
}

/* Counts the windows of head's epoch up to this one, which are being read now, as visited. */
static void count_visits(struct session *s, uint64_t last_window)
{
	uint64_t g = s->request.window_chunks, first, end;

	if (s->visited_epoch != s->head.epoch || s->ahead_window >= s->visited_windows) {
		s->visited_epoch = s->head.epoch;
		s->visited_windows = s->ahead_window;
	}
	first = s->visited_windows * g;
	end = (last_window + 1) * g < s->n_chunks ? (last_window + 1) * g : s->n_chunks;
	if (end > first)
		s->job->counters.chunk_visits += end - first;
	s->visited_windows = last_window + 1;
}

/* Which visit of the epoch each chunk is. NULL: without memory. */
static const uint32_t *visits_of(struct session *s, uint64_t epoch)
{
	const struct shuffle_plan *plan = plan_of(s, epoch);
	struct epoch_plan *p = &s->plans[epoch & 1];
	uint64_t n_chunks = s->dataset->info.n_chunks;

	if (!plan || p->visits)
		return plan ? p->visits : NULL;
	p->visits = reallocarray(NULL, n_chunks, sizeof(*p->visits));
	for (uint64_t i = 0; p->visits && i < n_chunks; i++)
		p->visits[i] = POLICY_NEVER;
	for (uint64_t i = 0; p->visits && i < shuffle_n_visits(plan); i++)
		p->visits[shuffle_chunk_visit(plan, i)] = (uint32_t)i;
	return p->visits;
}

/* Says where head is in the order, if chunks go for others: a dataset that fits does without. */
static void update_cursor(struct session *s, uint64_t window)
{
	uint64_t epoch = s->head.epoch;
	struct cached_cursor *k = &s->cursor;
	struct policy_cursor place = {.n_visits = (uint32_t)s->n_chunks,
				      .at = (uint32_t)(window * s->request.window_chunks)};

	if (!s->dataset->evicts || (s->has_cursor && k->epoch == epoch && k->place.at == place.at))
		return;
	/* What the next epoch needs is reserved when its turn comes. */
	place.then = s->exact ? NULL : visits_of(s, epoch + 1);
	place.now = visits_of(s, epoch);
	session_drop_cursor(s);
	if (!place.now)
		return;
	*k = (struct cached_cursor){.place = place,
				    .seed = s->request.seed,
				    .epoch = epoch,
				    .whole = !s->subset,
				    .shuffled = s->request.flags & DIESEL_SHUFFLE};
	cached_add_cursor(s->dataset, k);
	s->has_cursor = true;
}

/*
 * Lists the chunks of the windows of head and of the batches after it, until there are prefetch_chunks more
 * than head's own, or as many as storage needs so as not to be late; into the next epoch, but no further.
 * Windows that no batch of this session touches are left out.
 */
void session_update_ahead(struct session *s)
{
	uint32_t prefetch = s->prefetch_chunks, most = prefetch, own = 0;
	uint64_t epoch = s->head.epoch, index = s->head.index, first = 0, last = 0, done = 0;
	struct shuffle_plan *plan = plan_of(s, epoch);
	bool any = false;

	if (!plan || !batch_windows(plan, index, &first, &last))
		return;
	update_cursor(s, first);
	if (s->n_ahead > 0 && s->ahead_epoch == epoch && s->ahead_window == first &&
	    s->ahead_prefetch == prefetch)
		return;
	if (s->dataset->evicts) {
		session_note_pace(s, epoch * s->n_chunks + first * s->request.window_chunks,
				  clock_monotonic_ns());
		most = session_far_most(s);
	}
	session_needs_begin(s);
	s->n_ahead = 0;
	s->ahead_epoch = epoch;
	s->ahead_window = first;
	s->ahead_prefetch = prefetch;
	for (;;) {
		for (uint64_t w = any && first <= done ? done + 1 : first; w <= last; w++) {
			push_window(s, plan, epoch, w);
			done = w;
			any = true;
		}
		if (own == 0) {
			own = s->n_ahead;
			count_visits(s, last);
		}
		if (s->n_ahead - own >= most)
			break;
		index += s->request.stride;
		if (index >= s->n_batches) {
			if (epoch > s->head.epoch)
				break;
			epoch++;
			index = session_first_index(s, epoch, 0);
			any = false;
			plan = plan_of(s, epoch);
		}
		if (!plan || !batch_windows(plan, index, &first, &last))
			break;
	}
	session_needs_end(s);
	if (s->n_ahead > own + most)
		s->n_ahead = own + most;
	if (s->dataset->evicts)
		s->n_ahead = session_far_ahead(s, own);
}
