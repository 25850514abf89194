/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/cache/policy.h"
#include "dataset/subset.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/minmax.h"
#include "lib/sorted.h"
#include "lib/units.h"
#include "serving_knobs.h"

/* ---- the most that a session can pin or wait for at one time ---- */

/* [w]: bytes of the chunks of all windows before w. */
static uint64_t *sum_windows(const struct cached_dataset *d, const struct shuffle_plan *plan)
{
	uint64_t n_windows = shuffle_n_windows(plan), sum = 0, visit, end;
	uint64_t *sums = calloc(n_windows + 1, sizeof(*sums));

	for (uint64_t w = 0; sums && w < n_windows; w++) {
		for (shuffle_window_visits(plan, w, &visit, &end); visit < end; visit++)
			sum += d->chunks[shuffle_chunk_visit(plan, visit)].bytes;
		sums[w + 1] = sum;
	}
	return sums;
}

/* The windows of one lane of an epoch. */
struct order_row {
	const struct shuffle_plan *plan;
	const uint64_t *sums;
	uint64_t first, end, n_samples;
};

static struct order_row row_of(const struct shuffle_plan *plan, const uint64_t *sums, uint64_t lane)
{
	struct order_row row = {.plan = plan, .sums = sums, .n_samples = shuffle_lane_samples(plan, lane)};

	shuffle_lane_windows(plan, lane, &row.first, &row.end);
	return row;
}

/* Returns the place of a window's first sample in its lane. */
static uint64_t place_of(const struct order_row *row, uint64_t w)
{
	return w < row->end ? shuffle_window_place(row->plan, w) : row->n_samples;
}

/* Returns the bytes of the windows that the first n places touch. */
static uint64_t head_bytes(const struct order_row *row, uint64_t n)
{
	uint64_t w = row->first;

	while (w < row->end && place_of(row, w) < n)
		w++;
	return row->sums[w] - row->sums[row->first];
}

/* Returns the most bytes that `places` consecutive places touch. The worst case starts at the last sample of
 * a window. */
static uint64_t span_bytes(const struct order_row *row, const struct order_row *next, uint64_t places)
{
	uint64_t most = 0, last = row->first;

	for (uint64_t first = row->first; first < row->end; first++) {
		uint64_t end = place_of(row, first + 1) - 1 + places, bytes;

		if (place_of(row, first) == place_of(row, first + 1))
			continue;
		while (last + 1 < row->end && place_of(row, last + 1) < end)
			last++;
		bytes = row->sums[last + 1] - row->sums[first];
		if (next && end > row->n_samples)
			bytes += head_bytes(next, end - row->n_samples);
		most = max_u64(most, bytes);
	}
	return most;
}

/* Returns the most places of one lane in `positions` consecutive positions. */
static uint64_t places_of(uint64_t positions, uint64_t lanes)
{
	return lanes > 1 ? positions / lanes + 2 : positions;
}

/* Returns the most places of one lane that one batch of a session touches. */
static uint64_t batch_places(const struct order_shape *shape)
{
	return min_u64(shape->batch, places_of(shape->lanes > 1 ? shape->step : shape->batch, shape->lanes));
}

/* Returns the most places of one lane that all held batches touch together. */
static uint64_t held_places(const struct order_shape *shape, uint64_t held)
{
	uint64_t last = shape->lanes > 1 ? shape->step : shape->batch;

	return places_of((held - 1) * shape->batch_step + last, shape->lanes);
}

/* Returns the most chunks that places of one lane touch: whole windows of the chunks with the fewest samples,
 * and one more window at each end. A chunk in two lanes may have fewer samples in this one. */
static uint64_t most_chunks(const struct order_shape *shape, const uint32_t *samples, uint64_t places)
{
	uint64_t between = shape->lanes > 1 ? 2 : 0, n = between, sum = between, g = shape->window_chunks;

	for (uint64_t i = 0; i < shape->n_chunks && sum + samples[i] + 2 <= places; i++) {
		sum += samples[i];
		n++;
	}
	return min_u64((n / g + 2) * g, places);
}

static uint64_t held_batches(const struct order_shape *shape)
{
	return shape->views ? (uint64_t)shape->n_slots + 1 : 1;
}

/* Returns the largest need in chunks, for any order. */
static uint64_t need_at_most(const struct order_shape *shape, const uint32_t *samples)
{
	uint64_t held = held_batches(shape), one, span;

	if (shape->asked)
		return min_u64(held * shape->batch, shape->n_chunks);
	one = min_u64(shape->n_lanes * most_chunks(shape, samples, batch_places(shape)), shape->batch);
	span = shape->n_lanes * most_chunks(shape, samples, held_places(shape, held));
	return min_u64(min_u64(held * one, span), shape->n_chunks);
}

/* Computes the largest need in bytes for one epoch's order. next: plan of the next epoch, whose first batches
 * may be held together with the last ones of this epoch; NULL: not known yet. -ENOMEM. */
static int need_bytes(const struct cached_dataset *d, const struct order_shape *shape,
		      const struct shuffle_plan *plan, const struct shuffle_plan *next, uint64_t *ret_bytes)
{
	_cleanup_(freep) uint64_t *sums = sum_windows(d, plan);
	_cleanup_(freep) uint64_t *next_sums = next ? sum_windows(d, next) : NULL;
	uint64_t held = held_batches(shape), one = 0, then_one = 0, span = 0, lane, end;

	if (!sums || (next && !next_sums))
		return -ENOMEM;
	for (shuffle_rank_lanes(plan, &lane, &end); lane < end; lane++) {
		const struct order_row row = row_of(plan, sums, lane);
		struct order_row then;

		if (next) {
			then = row_of(next, next_sums, lane);
			then_one += span_bytes(&then, NULL, batch_places(shape));
		}
		/* A batch belongs to one epoch. */
		one += span_bytes(&row, NULL, batch_places(shape));
		span += span_bytes(&row, next ? &then : NULL, held_places(shape, held));
	}
	/* A batch has no more chunks than samples. */
	one = min_u64(max_u64(one, then_one), cached_largest_bytes(d, shape->batch));
	*ret_bytes = min_u64(min_u64(held * one, span), d->all_bytes);
	return 0;
}

/* ---- how far ahead to read ---- */

/*
 * Decides how far a session reads ahead if the dataset evicts chunks. The chunks that an epoch finds in
 * memory are those that it needs first (policy.h). So storage would idle while these are used, and be late
 * afterwards. Reading must begin earlier, but only as early as needed: a chunk that is read too early takes
 * the space of a chunk of the next epoch. If chunks also come from staging, the session reads only as far
 * ahead as the knob allows: many requests at once would exceed staging's patience and be read from storage
 * instead. This also applies to other nodes of the job.
 */

#define FORGET 0.75 /* weight of earlier measurements, applied at each window */

/* Measures the pace, when head has reached the window of this visit, which is counted over all epochs. The
 * client reports how long it waited. A false report only makes its own session read too early or too late. */
static void note_pace(struct order *o, uint64_t visit, const struct order_now *now)
{
	struct order_pace *p = &o->pace;
	uint64_t n = visit - p->visit, ns = now->at_ns - p->at_ns, waited_ns = now->waited_ns - p->wait_ns;

	if (p->at_ns && visit > p->visit && n <= o->n_chunks && now->waited_ns >= p->wait_ns) {
		p->visits = p->visits * FORGET + (double)n;
		p->used_ns = p->used_ns * FORGET + (double)(ns > waited_ns ? ns - waited_ns : 0);
	}
	p->at_ns = now->at_ns;
	p->wait_ns = now->waited_ns;
	p->visit = visit;
}

/* Returns true if the chunk is not in memory: it must be read, or is being read. */
static bool is_awaited(const struct cached_dataset *d, uint32_t chunk)
{
	return d->chunks[chunk].state != CHUNK_READY && d->chunks[chunk].state != CHUNK_BAD;
}

static uint64_t n_held(const struct order *o)
{
	return o->dataset->held_bytes / o->dataset->segment_bytes;
}

/* Returns the maximum number of chunks to list beyond head's own. */
static uint32_t far_most(const struct order *o)
{
	uint32_t reach = policy_far_reach(n_held(o));

	return reach > o->prefetch_chunks ? reach : o->prefetch_chunks;
}

/* Returns how many listed chunks to read according to the knob. */
static uint32_t near(const struct order *o, uint32_t own)
{
	uint64_t end = (uint64_t)own + o->prefetch_chunks, reach = policy_reach(n_held(o));

	if (end > reach)
		end = reach > own ? reach : own;
	return end < o->ahead.n ? (uint32_t)end : o->ahead.n;
}

/* Returns how many of the listed chunks must be read, including head's `own` chunks. */
static uint32_t far_ahead(const struct order *o, uint32_t own)
{
	const struct cached_dataset *d = o->dataset;
	const struct order_pace *p = &o->pace;
	uint32_t window = o->request.window_chunks, end = near(o, own), n_missing = 0, n_wanted, i = own;
	double use_ns = p->visits > 0 ? p->used_ns / p->visits : 0;
	double read_ns = d->pace.reading.ns_per_byte * (double)d->segment_bytes;
	bool late = false;

	if (d->pace.reading.n == 0 || p->visits == 0 || (d->pace.from_staging && !d->pace.staging.is_off) ||
	    o->membership)
		return end;
	for (uint32_t k = own; k < o->ahead.n && !late; k++) {
		n_missing += is_awaited(d, o->ahead.chunks[k]);
		late = policy_is_late(read_ns, n_missing, use_ns, (k - own) / window * window);
	}
	if (!late)
		return end;
	n_wanted = policy_reads_meanwhile(read_ns, use_ns, own);
	for (n_missing = 0; i < o->ahead.n && n_missing < n_wanted; i++)
		n_missing += is_awaited(d, o->ahead.chunks[i]);
	return i > end ? i : end;
}

/* ---- plans ---- */

/* Makes the specification of the session's order in that epoch. */
static void make_spec(const struct order *o, uint64_t epoch, struct shuffle_spec *ret)
{
	const struct wire_open_session *q = &o->request;

	*ret = (struct shuffle_spec){.start = epoch == q->epoch ? q->start : 0,
				     .chunk_samples = o->chunk_samples,
				     .n_chunks = o->dataset->info.n_chunks,
				     .subset = o->subset,
				     .seed = q->seed,
				     .epoch = epoch,
				     .window_chunks = q->window_chunks,
				     .shuffle = q->flags & DIESEL_SHUFFLE,
				     .rank = q->rank,
				     .world = q->world,
				     .batch = q->batch,
				     .lanes = q->lanes,
				     .drift = q->drift,
				     .base = o->dataset->base,
				     .drop_last = q->flags & DIESEL_DROP_LAST};
}

static int plan_new(const struct order *o, uint64_t epoch, struct shuffle_plan **ret)
{
	struct shuffle_spec spec;

	make_spec(o, epoch, &spec);
	return shuffle_plan_new(&spec, ret);
}

void order_drop_cursor(struct order *o)
{
	if (o->has_cursor)
		cached_drop_cursor(o->dataset, &o->cursor);
	o->has_cursor = false;
}

/* Computes the need of a plan's epoch, and of the transition between it and the other plan's epoch. */
static int find_need(struct order *o, struct epoch_plan *p)
{
	struct epoch_plan *other = &o->plans[(p->epoch + 1) & 1];
	const struct shuffle_plan *next = other->plan && other->epoch == p->epoch + 1 ? other->plan : NULL;
	int r = need_bytes(o->dataset, &o->shape, p->plan, next, &p->need_bytes);

	if (r == 0 && other->plan && other->epoch + 1 == p->epoch)
		r = need_bytes(o->dataset, &o->shape, other->plan, p->plan, &other->need_bytes);
	return r;
}

/* Returns the plan of an epoch, NULL on failure. Two plans are stored, because reading ahead continues into
 * the next epoch. */
static struct shuffle_plan *plan_of(struct order *o, uint64_t epoch)
{
	struct epoch_plan *p = &o->plans[epoch & 1];
	struct shuffle_plan *plan;

	if (p->plan && p->epoch == epoch)
		return p->plan;
	if (plan_new(o, epoch, &plan) < 0)
		return NULL;
	order_drop_cursor(o); /* the cursor may refer to the plan that is freed */
	shuffle_plan_free(p->plan);
	free(p->turns);
	free(p->visits);
	*p = (struct epoch_plan){.epoch = epoch, .plan = plan};
	return o->exact && find_need(o, p) < 0 ? NULL : plan;
}

/* ---- open, start, end ---- */

/* Default window, in chunks, of a job with several ranks: equal for all of them. */
#define RANKS_WINDOW 8
/* Default window, in chunks, of a job with lanes; each lane has its own window. */
#define LANES_WINDOW 2

static int count_samples(struct order *o, struct error *err)
{
	const struct snapshot_info *info = &o->dataset->info;

	o->n_samples = o->subset ? subset_count(o->subset) : info->n_samples;
	o->n_chunks = o->subset ? 0 : info->n_chunks;
	o->chunk_samples = calloc(info->n_chunks, sizeof(*o->chunk_samples));
	if (!o->chunk_samples)
		return error_errno(err, -ENOMEM, "cannot open the session");
	for (uint64_t i = 0; i < info->n_chunks; i++) {
		struct snapshot_chunk chunk;
		int r = snapshot_chunk_get(o->dataset->snapshot, i, &chunk);

		if (r < 0)
			return error_errno(err, r, "%s: chunk table", o->dataset->path);
		o->chunk_samples[i] = chunk.n_samples;
		if (o->subset && subset_count_range(o->subset, chunk.first_sample,
						    chunk.first_sample + chunk.n_samples) > 0)
			o->n_chunks++;
	}
	return 0;
}

/* Counts batches, and sets the items that a slot must hold: the longest batch of any rank, at most the
 * dataset. */
static int count_batches(struct order *o, struct error *err)
{
	const struct wire_open_session *q = &o->request;
	uint64_t n_samples = o->n_samples;
	struct shuffle_counts counts;

	if (q->flags & DIESEL_ASKED) {
		o->n_batches = UINT64_MAX;
		o->batch = q->batch;
		return 0;
	}
	if (shuffle_count(n_samples, q->start, q->world, q->batch, q->flags & DIESEL_DROP_LAST, &counts) <
	    0) {
		if (q->start && n_samples >= q->world)
			return error_set(
			    err, -EINVAL,
			    "%llu samples are left in epoch %llu of %s, too few for %u ranks: continue with "
			    "fewer ranks, or with the next epoch",
			    (unsigned long long)(q->start < n_samples ? n_samples - q->start : 0),
			    (unsigned long long)q->epoch, o->dataset->path, q->world);
		return error_set(err, -EINVAL, "%s%s has %llu sample%s, too few for %u ranks",
				 o->subset ? "the subset of " : "", o->dataset->path,
				 (unsigned long long)n_samples, units_plural(n_samples), q->world);
	}
	if (q->lanes > n_samples)
		return error_set(err, -EINVAL, "%s%s has %llu sample%s, too few for %u lanes",
				 o->subset ? "the subset of " : "", o->dataset->path,
				 (unsigned long long)n_samples, units_plural(n_samples), q->lanes);
	o->n_batches = counts.n_batches;
	o->start_batch = counts.first_batch;
	o->batch = counts.max_batch < n_samples ? counts.max_batch : (uint32_t)n_samples;
	return 0;
}

/* Sets the request's window. is_of_cluster: other nodes of the job have the same order, whatever their
 * caches. */
static void choose_window(struct order *o, const struct serving_options *options, bool is_of_cluster,
			  char *notice, size_t size)
{
	struct wire_open_session *q = &o->request;
	uint64_t n_chunks = o->n_chunks;
	uint32_t asked = q->window_chunks, wanted = options->window_chunks;
	uint64_t bytes;

	if (q->flags & DIESEL_ASKED) {
		q->window_chunks = 1;
		return;
	}
	if (asked || is_of_cluster || q->world > 1) {
		/* The daemons of other ranks may have other caches and options, but all ranks need the
		 * same order. */
		asked = asked ? asked : q->lanes > 1 ? LANES_WINDOW : RANKS_WINDOW;
		q->window_chunks = asked < o->n_chunks ? asked : (uint32_t)o->n_chunks;
		return;
	}
	/* Mean chunk size of two windows, in the worst case: the largest chunks come together. */
	bytes = cached_largest_bytes(o->dataset, 2 * (uint64_t)wanted) /
		(2 * (uint64_t)wanted < n_chunks ? 2 * (uint64_t)wanted : n_chunks);
	q->window_chunks = policy_default_window(options->window_cache_bytes, bytes, n_chunks, wanted);
	if (q->window_chunks < wanted && q->window_chunks < n_chunks)
		snprintf(notice, size,
			 "the shuffle window is %u chunk%s instead of %u, because dieseld's cache is small: "
			 "a larger --cache, or window_chunks, changes the window and with it the order",
			 q->window_chunks, units_plural(q->window_chunks), wanted);
}

/* Allocates the bookkeeping, and plans the first epoch. */
static int begin(struct order *o, struct error *err)
{
	struct shuffle_plan *plan;
	int r;

	o->stamps = calloc(o->dataset->info.n_chunks, sizeof(*o->stamps));
	o->samples = calloc(o->batch, sizeof(*o->samples));
	if (o->request.flags & DIESEL_ASKED)
		return o->stamps && o->samples ? 0 : error_errno(err, -ENOMEM, "cannot open the session");
	o->windows_of_head = calloc(o->batch, sizeof(*o->windows_of_head));
	o->windows_of_next = calloc(o->batch, sizeof(*o->windows_of_next));
	o->lanes = calloc(max_u64(o->request.lanes, 1), sizeof(*o->lanes));
	if (!o->stamps || !o->samples || !o->windows_of_head || !o->windows_of_next || !o->lanes)
		return error_errno(err, -ENOMEM, "cannot open the session");
	r = o->request.lanes > 1 ? cached_list_base(o->dataset) : 0;
	if (r < 0)
		return error_errno(err, r, "cannot list the chunks of %s", o->dataset->path);
	r = plan_new(o, o->request.epoch, &plan);
	if (r < 0)
		return error_errno(err, r, "cannot plan the order of %s", o->dataset->path);
	o->plans[o->request.epoch & 1] = (struct epoch_plan){.epoch = o->request.epoch, .plan = plan};
	return 0;
}

int order_open(struct order *o, const struct serving_options *options, bool is_of_cluster, char *notice,
	       size_t size, struct error *err)
{
	int r = count_samples(o, err);

	if (r == 0)
		r = count_batches(o, err);
	if (r < 0)
		return r;
	choose_window(o, options, is_of_cluster, notice, size);
	return begin(o, err);
}

/* Returns the shape of a session with n_slots slots. views: batches pin their chunks until the client
 * releases them. */
static struct order_shape shape_of(const struct order *o, uint32_t n_slots, bool views)
{
	const struct wire_open_session *q = &o->request;
	const struct shuffle_plan *plan = o->plans[q->epoch & 1].plan;
	uint64_t step = min_u64((uint64_t)q->world * o->batch, o->n_samples), first = 0, end = 1;

	if (plan) /* the lanes are the same in all epochs, except in one with a start */
		shuffle_rank_lanes(plan, &first, &end);
	return (struct order_shape){.batch_step = min_u64(step * q->stride, o->n_samples),
				    .step = step,
				    .lanes = q->lanes > 1 ? q->lanes : 1,
				    .n_lanes = end - first,
				    .n_chunks = o->n_chunks,
				    .batch = o->batch,
				    .window_chunks = q->window_chunks,
				    .n_slots = n_slots,
				    .views = views,
				    .asked = q->flags & DIESEL_ASKED};
}

int order_need(struct order *o, const uint32_t *samples, uint32_t n_slots, bool views, uint64_t *ret_chunks,
	       uint64_t *ret_bytes)
{
	struct epoch_plan *first = &o->plans[o->request.epoch & 1];
	int r;

	o->shape = shape_of(o, n_slots, views);
	*ret_chunks = need_at_most(&o->shape, samples);
	*ret_bytes = cached_largest_bytes(o->dataset, *ret_chunks);
	if (!o->exact)
		return 0;
	r = find_need(o, first);
	*ret_bytes = first->need_bytes;
	return r;
}

/* Registers the session's lanes with the membership. */
static void join_lanes(struct order *o)
{
	const struct shuffle_plan *plan = o->plans[o->epoch & 1].plan;
	struct shuffle_spec spec;
	uint64_t first = o->request.rank, end = first + 1;

	if (!o->membership || o->request.lanes <= 1 || (!plan && !(o->request.flags & DIESEL_WARM)))
		return;
	if (plan)
		shuffle_rank_lanes(plan, &first, &end);
	else if (cached_list_base(o->dataset) < 0)
		return; /* without lanes: this node has the chunks that it owns */
	make_spec(o, o->epoch, &spec);
	spec.shuffle |= (o->request.flags & DIESEL_WARM) != 0; /* jobs that use the warm cache shuffle */
	membership_join_lanes(o->membership, &spec, first, end);
}

static uint64_t first_index(const struct order *o, uint64_t epoch, uint64_t batch)
{
	uint64_t offset = o->request.offset, stride = o->request.stride;

	if (epoch == o->request.epoch && batch < o->start_batch)
		batch = o->start_batch;
	if (batch <= offset)
		return offset;
	if (batch >= o->n_batches)
		return batch;
	return offset + (batch - offset + stride - 1) / stride * stride;
}

void order_seek(struct order *o, uint64_t epoch, uint64_t batch)
{
	o->epoch = epoch;
	o->index = first_index(o, epoch, batch);
	o->has_head = false;
	o->ahead.n = 0;
}

int order_start(struct order *o, struct membership *membership)
{
	o->want.subset = o->subset;
	o->membership = membership;
	if (o->request.flags & DIESEL_ASKED) {
		o->asked = calloc(o->shape.n_slots, sizeof(*o->asked));
		o->asked_end = o->request.first_batch;
		if (!o->asked)
			return -ENOMEM;
	}
	order_seek(o, o->request.epoch, o->request.first_batch);
	join_lanes(o);
	return batch_init(&o->head, o->batch, o->dataset->info.n_chunks);
}

void order_end(struct order *o)
{
	batch_free(&o->head);
	order_drop_cursor(o);
	for (int i = 0; i < 2; i++) {
		shuffle_plan_free(o->plans[i].plan);
		free(o->plans[i].turns);
		free(o->plans[i].visits);
	}
	subset_free(o->subset);
	free(o->chunk_samples);
	free(o->stamps);
	free(o->samples);
	free(o->windows_of_head);
	free(o->windows_of_next);
	free(o->lanes);
	free(o->ahead.chunks);
	free(o->asked);
	free(o->skips);
}

static void set_head(struct order *o, const uint64_t *samples, uint32_t n)
{
	if (++o->stamp == 0) {
		memset(o->stamps, 0, o->dataset->info.n_chunks * sizeof(*o->stamps));
		o->stamp = 1;
	}
	o->head.epoch = o->epoch;
	o->head.index = o->index;
	batch_set_samples(&o->head, o->dataset, samples, n, o->stamps, o->stamp);
	o->has_head = true;
}

static bool push_ahead(struct order *o, uint64_t chunk)
{
	if (array_reserve(o->ahead.chunks, o->ahead.n, o->ahead.size) < 0)
		return false;
	o->ahead.chunks[o->ahead.n++] = (uint32_t)chunk;
	return true;
}

/* ---- batches that the client asks for ---- */

static struct order_asked *asked_at(const struct order *o, uint64_t index)
{
	return &o->asked[index % o->shape.n_slots];
}

static bool push_chunk_of(struct order *o, uint64_t sample, uint32_t *ret_chunk)
{
	struct snapshot_sample found;

	if (snapshot_sample_get(o->dataset->snapshot, sample, &found) < 0)
		return true; /* an invalid record turns its batch into an error later */
	*ret_chunk = found.chunk;
	return push_ahead(o, found.chunk);
}

/* Lists the chunks of the batches asked for after head, and then further chunks after the last one that
 * may also be read: as many as the prefetch knob allows, which also bounds the cost of each message. */
static void list_asked(struct order *o, uint32_t last_chunk, uint32_t ahead)
{
	o->ahead.n = 0;
	for (uint64_t i = o->index; i < o->asked_end; i++) {
		const struct order_asked *a = asked_at(o, i);

		/* The needed samples of its chunks are known only once this batch is the head. */
		if (a->ahead == WIRE_ASK_FEW)
			return;
		for (uint32_t k = 0; k < a->n_samples; k++) {
			if (o->ahead.n >= o->prefetch_chunks)
				return;
			if (!push_chunk_of(o, a->samples[k], &last_chunk))
				return;
		}
		ahead = a->ahead;
	}
	ahead = (uint32_t)max_u64(ahead, o->reach);
	for (uint64_t chunk = last_chunk + UINT64_C(1);
	     chunk <= (uint64_t)last_chunk + ahead && chunk < o->dataset->info.n_chunks &&
	     o->ahead.n < o->prefetch_chunks;
	     chunk++) {
		if (!order_skips(o, chunk) && !push_ahead(o, chunk))
			return;
	}
}

static uint32_t last_chunk_of(const struct batch *b)
{
	return b->n_items ? b->items[b->n_items - 1].chunk : 0;
}

int order_ask(struct order *o, const struct wire_ask *ask)
{
	struct order_asked *a;

	if (!o->asked || ask->index != o->asked_end || o->asked_end - o->index >= o->shape.n_slots ||
	    ask->n_samples > o->batch)
		return -EPROTO;
	a = asked_at(o, o->asked_end++);
	a->n_samples = ask->n_samples;
	a->ahead = ask->ahead;
	memcpy(a->samples, ask->samples, sizeof(a->samples));
	if (o->has_head)
		list_asked(o, last_chunk_of(&o->head), 0);
	return 0;
}

static bool next_asked(struct order *o)
{
	const struct order_asked *a;

	if (o->index == o->asked_end)
		return false;
	a = asked_at(o, o->index);
	memcpy(o->samples, a->samples, a->n_samples * sizeof(*o->samples));
	o->want = (struct cached_want){0};
	if (a->ahead == WIRE_ASK_FEW)
		o->want = (struct cached_want){.samples = o->samples, .n = a->n_samples};
	set_head(o, o->samples, a->n_samples);
	o->index++;
	list_asked(o, last_chunk_of(&o->head), a->ahead == WIRE_ASK_FEW ? 0 : a->ahead);
	return true;
}

/* ---- batches of an order ---- */

bool order_next(struct order *o)
{
	struct shuffle_plan *plan;
	uint32_t n = 0;

	if (o->asked)
		return next_asked(o);
	if (o->request.offset >= o->n_batches)
		return false;
	if (o->index >= o->n_batches) {
		o->epoch++;
		o->index = first_index(o, o->epoch, 0);
	}
	plan = plan_of(o, o->epoch);
	if (!plan || shuffle_batch(plan, o->index, o->samples, &n) < 0)
		return false;
	assert(n <= o->batch);
	set_head(o, o->samples, n);
	membership_go_on(o->membership, o->epoch);
	o->index += o->request.stride;
	return true;
}

static void push_window(struct order *o, const struct shuffle_plan *plan, uint64_t window)
{
	uint64_t visit, end;

	for (shuffle_window_visits(plan, window, &visit, &end); visit < end; visit++) {
		if (!push_ahead(o, shuffle_chunk_visit(plan, visit)))
			return;
	}
}

/* Lists those of the n windows that are not listed yet. */
static void push_windows(struct order *o, const struct shuffle_plan *plan, const uint64_t *windows,
			 uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct order_lane *lane = &o->lanes[shuffle_window_lane(plan, windows[i])];

		if (windows[i] < lane->listed)
			continue;
		push_window(o, plan, windows[i]);
		lane->listed = windows[i] + 1;
	}
}

static void nothing_is_listed(struct order *o, const struct shuffle_plan *plan)
{
	for (uint64_t l = 0; l < shuffle_n_lanes(plan); l++)
		o->lanes[l].listed = 0;
}

/* Counts head's windows, which are being read now, as visited. */
static void count_visits(struct order *o, const struct shuffle_plan *plan)
{
	uint64_t visit, end;

	for (uint64_t l = 0; o->visited_epoch != o->head.epoch && l < shuffle_n_lanes(plan); l++)
		o->lanes[l].visited = 0;
	o->visited_epoch = o->head.epoch;
	for (uint32_t i = 0; i < o->n_of_head; i++) {
		uint64_t w = o->windows_of_head[i];
		struct order_lane *lane = &o->lanes[shuffle_window_lane(plan, w)];

		if (w < lane->visited)
			continue;
		shuffle_window_visits(plan, w, &visit, &end);
		o->n_visited += end - visit;
		lane->visited = w + 1;
	}
}

/* ---- the session's place among all visits, if the dataset evicts chunks ---- */

struct window_place {
	uint64_t place, window;
};

static int by_place(const void *a, const void *b)
{
	const struct window_place *x = a, *y = b;
	int order = compare_numbers(x->place, y->place);

	return order ? order : compare_numbers(x->window, y->window);
}

/* Counts the visits of the session's lanes before each window, with drift also before those of other
 * lanes. All lanes advance at the same pace. -ENOMEM. */
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

/* Sets a chunk's visit; for a chunk in two lanes, the later one. */
static void note_visit(struct epoch_plan *p, uint64_t chunk, uint32_t turn)
{
	if (p->visits[chunk] == POLICY_NEVER || turn > p->visits[chunk])
		p->visits[chunk] = turn;
}

/* Finds which visit of the epoch each chunk of the session's lanes is. A chunk that has moved to another
 * node's lane counts as needed at its turn there. NULL: without memory. */
static const struct epoch_plan *visits_of(struct order *o, uint64_t epoch)
{
	const struct shuffle_plan *plan = plan_of(o, epoch);
	struct epoch_plan *p = &o->plans[epoch & 1];
	uint64_t n_chunks = o->dataset->info.n_chunks, visit, end, first, end_lane;

	if (!plan || p->visits)
		return plan ? p : NULL;
	if (!p->turns && find_turns(p, o->request.drift > 0) < 0)
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
			else if (membership_has_left(o->membership, epoch, chunk))
				note_visit(p, chunk, turn);
		}
	}
	return p;
}

/* Returns the index of the first visit to any of head's windows, or n_visits if there is none. */
static uint32_t turn_of_head(const struct order *o, const struct epoch_plan *p)
{
	uint32_t at = POLICY_NEVER;

	for (uint32_t i = 0; i < o->n_of_head; i++) {
		uint32_t turn = p->turns[o->windows_of_head[i]];

		if (turn < at)
			at = turn;
	}
	return at < p->n_visits ? at : p->n_visits;
}

/* Updates the cursor to head's position in the order. A dataset that fits in the cache needs no cursor. */
static void update_cursor(struct order *o)
{
	uint64_t epoch = o->head.epoch;
	struct cached_cursor *k = &o->cursor;
	const struct epoch_plan *now, *then;
	struct policy_cursor place;

	if (!o->dataset->evicts)
		return;
	/* If exact, the need of the next epoch is reserved when it begins. */
	then = o->exact ? NULL : visits_of(o, epoch + 1);
	now = visits_of(o, epoch);
	if (!now) {
		order_drop_cursor(o);
		return;
	}
	place = (struct policy_cursor){.now = now->visits,
				       .then = then ? then->visits : NULL,
				       .n_visits = now->n_visits,
				       .at = turn_of_head(o, now)};
	if (o->has_cursor && k->epoch == epoch && k->place.at == place.at)
		return;
	order_drop_cursor(o);
	*k = (struct cached_cursor){.place = place,
				    .seed = o->request.seed,
				    .epoch = epoch,
				    .whole = !o->subset,
				    .shuffled = o->request.flags & DIESEL_SHUFFLE,
				    .lanes = o->request.lanes,
				    .drift = o->request.drift};
	shuffle_rank_lanes(now->plan, &k->first_lane, &k->end_lane);
	cached_add_cursor(o->dataset, k);
	o->has_cursor = true;
}

/* Finds head's windows. Sets *ret_changed if they differ from those for which `ahead` was made. */
static bool find_windows(struct order *o, const struct shuffle_plan *plan, bool *ret_changed)
{
	uint64_t *windows = o->windows_of_next;
	uint32_t n;

	if (shuffle_batch_windows(plan, o->head.index, windows, &n) < 0)
		return false;
	*ret_changed = o->ahead.epoch != o->head.epoch || n != o->n_of_head ||
		       memcmp(windows, o->windows_of_head, n * sizeof(*windows)) != 0;
	o->windows_of_next = o->windows_of_head;
	o->windows_of_head = windows;
	o->n_of_head = n;
	return true;
}

void order_look_ahead(struct order *o, const struct order_now *now)
{
	struct order_ahead *a = &o->ahead;
	uint32_t prefetch = o->prefetch_chunks, most = prefetch, own, n;
	uint64_t epoch = o->head.epoch, index = o->head.index, kept;
	struct shuffle_plan *plan;
	bool changed;

	if (!o->has_head || o->asked)
		return;
	kept = now->kept_run / o->request.stride;
	plan = plan_of(o, epoch);
	if (!plan || !find_windows(o, plan, &changed))
		return;
	update_cursor(o);
	if (a->n > 0 && !changed && a->prefetch == prefetch && (kept > 0 || !a->without_kept))
		return;
	count_visits(o, plan);
	if (o->dataset->evicts) {
		note_pace(o, o->n_visited, now);
		most = far_most(o);
	}
	a->n = 0;
	a->epoch = epoch;
	a->prefetch = prefetch;
	a->without_kept = kept > 0;
	if (kept > (o->n_batches - index) / o->request.stride) /* at most the rest of the epoch */
		return;
	nothing_is_listed(o, plan);
	if (kept > 0)
		index += (kept - 1) * o->request.stride;
	else
		push_windows(o, plan, o->windows_of_head, o->n_of_head);
	own = a->n;
	while (a->n - own < most) {
		index += o->request.stride;
		if (index >= o->n_batches) {
			if (epoch > o->head.epoch)
				break;
			epoch++;
			index = first_index(o, epoch, 0);
			plan = plan_of(o, epoch);
			if (plan)
				nothing_is_listed(o, plan);
		}
		if (!plan || shuffle_batch_windows(plan, index, o->windows_of_next, &n) < 0)
			break;
		push_windows(o, plan, o->windows_of_next, n);
	}
	if (a->n > own + most)
		a->n = own + most;
	if (o->dataset->evicts)
		a->n = far_ahead(o, own);
}
