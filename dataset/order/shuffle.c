/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/shuffle.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "dataset/subset.h"
#include "lib/cleanup.h"
#include "lib/minmax.h"
#include "lib/sorted.h"
#include "random.h"

/* How chunks are dealt to lanes, and where a position of the epoch lies among them: docs/reference/formats.md
 * has the rules. */

#define DEAL_SEED  (UINT64_MAX - 1)
#define DEAL_BLOCK 64 /* chunks of similar size that are shuffled among themselves */

/* Returns where lane l begins in the list of n samples. The lane ends where lane l + 1 begins. l <= lanes <=
 * n. */
static uint64_t lanes_begin(uint64_t n, uint64_t lanes, uint64_t l)
{
	uint64_t extra = n % lanes;

	return l * (n / lanes) + (l < extra ? l : extra);
}

/* Returns the lane of the sample at this place of the list. */
static uint64_t lanes_at(uint64_t n, uint64_t lanes, uint64_t place)
{
	uint64_t each = n / lanes, extra = n % lanes, longer = extra * (each + 1);

	return place < longer ? place / (each + 1) : extra + (place - longer) / each;
}

/* Returns how many of the positions below p belong to lanes below l (l <= lanes). */
static uint64_t lanes_lower_before(uint64_t p, uint64_t lanes, uint64_t l)
{
	uint64_t extra = p % lanes;

	return p / lanes * l + (extra < l ? extra : l);
}

/* An item to sort: a chunk by its key, or a slot by its chunk's size. Equal items are sorted by a random
 * draw, then by number. */
struct sortable {
	uint64_t key, drawn, number;
};

static int by_key(const void *a, const void *b)
{
	const struct sortable *x = a, *y = b;
	int order = compare_numbers(x->key, y->key);

	order = order ? order : compare_numbers(x->drawn, y->drawn);
	return order ? order : compare_numbers(x->number, y->number);
}

int shuffle_base_list(const uint64_t *keys, uint64_t n, uint64_t *list)
{
	_cleanup_(freep) struct sortable *chunks = calloc(n + 1, sizeof(*chunks));

	if (!chunks)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		chunks[i] = (struct sortable){.key = keys[i], .number = i};
	qsort(chunks, n, sizeof(*chunks), by_key);
	for (uint64_t i = 0; i < n; i++)
		list[i] = chunks[i].number;
	return 0;
}

/* Shuffles the chunks among these slots. values: space for n. */
static void deal_block(const uint64_t *base, struct sortable *slots, uint64_t n, struct random_state *random,
		       uint64_t *values, uint64_t *list)
{
	for (uint64_t i = 0; i < n; i++)
		slots[i].key = slots[i].drawn = 0;
	qsort(slots, n, sizeof(*slots), by_key);
	for (uint64_t i = 0; i < n; i++)
		values[i] = base[slots[i].number];
	random_shuffle(random, values, n);
	for (uint64_t i = 0; i < n; i++)
		list[slots[i].number] = values[i];
}

/* Makes the list of an epoch with drift 1/m from the base list: list[n]. samples: of each chunk, by its
 * number. m = 0: the base list itself. -ENOMEM. */
static int lanes_deal(const uint64_t *base, const uint32_t *samples, uint64_t n, uint64_t epoch, uint32_t m,
		      uint64_t *list)
{
	_cleanup_(freep) struct sortable *slots = NULL;
	uint64_t values[DEAL_BLOCK];

	for (uint64_t i = 0; i < n; i++)
		list[i] = base[i];
	if (m == 0)
		return 0;
	slots = calloc(n / m + 2, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	/* Cohort j was last dealt in the newest epoch e > 0 with e mod m = j. */
	for (uint64_t j = 0; j < m && j < n && j <= epoch; j++) {
		uint64_t dealt = epoch - (epoch - j) % m, n_slots = 0;
		struct random_state random;

		if (dealt == 0)
			continue;
		random_init(&random, DEAL_SEED, dealt, j);
		/* Otherwise chunks of one size would change places only with their neighbours, mostly in the
		 * same lane. */
		for (uint64_t i = j; i < n; i += m)
			slots[n_slots++] = (struct sortable){samples[base[i]], random_next(&random), i};
		qsort(slots, n_slots, sizeof(*slots), by_key);
		for (uint64_t k = 0; k < n_slots; k += DEAL_BLOCK)
			deal_block(base, slots + k, n_slots - k < DEAL_BLOCK ? n_slots - k : DEAL_BLOCK,
				   &random, values, list);
	}
	return 0;
}

/* The cut of an epoch of n samples, or of its rest, into steps and batches for (rank, world, batch).
 * dataset/shuffle.h has the rules. Pure. */

struct shuffle_cut {
	uint64_t start;        /* positions that are left out at the front */
	uint64_t n_samples;    /* behind them */
	uint64_t step_samples; /* world * batch: positions of a full step */
	uint64_t first_step;   /* number of the first step, such that the epoch ends with the same number as
				  without start */
	uint64_t n_full;       /* full steps, at the front */
	uint64_t n_steps;      /* steps of the whole epoch */
	uint64_t tail_samples[2]; /* samples of the steps after the full ones */
	uint32_t rank, world;
	uint32_t max_batch;
};

/* Initialises the cut for n_samples samples. */
static int cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint32_t rank, uint32_t world,
		    uint32_t batch, bool drop_last)
{
	uint64_t step = (uint64_t)world * batch, rest = n_samples % step;

	*cut = (struct shuffle_cut){
	    .n_samples = n_samples,
	    .step_samples = step,
	    .n_full = n_samples / step,
	    .rank = rank,
	    .world = world,
	    .max_batch = batch,
	};
	cut->n_steps = cut->n_full;
	if (rest == 0 || drop_last)
		return 0;
	if (n_samples < world)
		return -EINVAL;
	if (rest >= world) {
		cut->tail_samples[0] = rest;
		cut->n_steps = cut->n_full + 1;
		return 0;
	}
	/* n_samples >= world, so there is a full step to share with. */
	cut->n_full--;
	if (batch == 1) {
		cut->tail_samples[0] = step + rest;
		cut->max_batch = 2;
		cut->n_steps = cut->n_full + 1;
	} else {
		cut->tail_samples[1] = (step + rest) / 2;
		cut->tail_samples[0] = step + rest - cut->tail_samples[1];
		cut->n_steps = cut->n_full + 2;
	}
	return 0;
}

/* Initialises the cut. n_samples: of the epoch; start: how many of them are left out. -EINVAL: a value is out
 * of range, or fewer samples than ranks exist or are left (0 left is allowed). */
static int shuffle_cut_init(struct shuffle_cut *cut, uint64_t n_samples, uint64_t start, uint32_t rank,
			    uint32_t world, uint32_t batch, bool drop_last)
{
	struct shuffle_cut whole;
	int r;

	if (world == 0 || rank >= world || batch == 0 || n_samples < world || start > n_samples)
		return -EINVAL;
	(void)cut_init(&whole, n_samples, rank, world, batch, drop_last);
	r = cut_init(cut, n_samples - start, rank, world, batch, drop_last);
	if (r < 0)
		return r;
	/* Fewer samples never make more steps. */
	cut->start = start;
	cut->first_step = whole.n_steps - cut->n_steps;
	cut->n_steps = whole.n_steps;
	if (whole.max_batch > cut->max_batch)
		cut->max_batch = whole.max_batch;
	return 0;
}

/* Returns the positions of all ranks' batches of a step. -ERANGE: step < first_step or >= n_steps. */
static int shuffle_cut_step(const struct shuffle_cut *cut, uint64_t step, uint64_t *ret_first,
			    uint64_t *ret_count)
{
	if (step < cut->first_step || step >= cut->n_steps)
		return -ERANGE;
	step -= cut->first_step;
	if (step < cut->n_full) {
		*ret_first = cut->start + step * cut->step_samples;
		*ret_count = cut->step_samples;
		return 0;
	}
	*ret_first =
	    cut->start + cut->n_full * cut->step_samples + (step > cut->n_full ? cut->tail_samples[0] : 0);
	*ret_count = cut->tail_samples[step - cut->n_full];
	return 0;
}

/* Random streams within one (seed, epoch): each lane has one for its chunks, and one for each window. */
#define STREAM_CHUNKS(l)    ((l) << 40)
#define STREAM_WINDOW(l, w) (STREAM_CHUNKS(l) + 1 + (w))
#define MAX_LANES           (1u << 24)
#define NO_WINDOW           UINT64_MAX

/* The samples of one window of a lane in visiting order. */
struct shuffle_cursor {
	uint64_t window;
	uint64_t *samples;
	uint64_t capacity;
};

struct shuffle_plan {
	struct shuffle_cut cut;
	uint64_t seed, epoch;
	uint32_t window_chunks;
	bool shuffle;
	const struct subset *subset;
	uint64_t n_chunks, n_visits, n_windows, n_samples, n_lanes;
	uint64_t *first_sample; /* n_chunks + 1: number of each chunk's first sample */
	uint64_t *place; /* n_chunks: place of each chunk's first sample in the list that is cut into lanes;
			    NULL with one lane */
	uint64_t *lane_visit;  /* n_lanes + 1: each lane's first place in visits */
	uint64_t *lane_window; /* n_lanes + 1: each lane's first window */
	uint64_t *visits;      /* n_visits: lane after lane, the chunk that is visited i-th */
	uint64_t *first;       /* n_windows + 1: the place in its lane of each window's first sample */
	struct shuffle_cursor *cursors; /* n_lanes */
};

static uint64_t chunk_count(const struct shuffle_plan *p, uint64_t chunk)
{
	uint64_t first = p->first_sample[chunk], end = p->first_sample[chunk + 1];

	return p->subset ? subset_count_range(p->subset, first, end) : end - first;
}

static uint64_t lane_samples(const struct shuffle_plan *p, uint64_t lane)
{
	return lanes_begin(p->n_samples, p->n_lanes, lane + 1) - lanes_begin(p->n_samples, p->n_lanes, lane);
}

static uint64_t lane_of_window(const struct shuffle_plan *p, uint64_t w)
{
	return sorted_count(p->n_lanes, l, p->lane_window[l] <= w) - 1;
}

/* Finds the part of a chunk that is in a lane. Returns the number of its samples; *ret_skip samples of the
 * chunk come before them. */
static uint64_t lane_part(const struct shuffle_plan *p, uint64_t lane, uint64_t chunk, uint64_t *ret_skip)
{
	uint64_t n = chunk_count(p, chunk), place, begin, end;

	*ret_skip = 0;
	if (!p->place)
		return n;
	place = p->place[chunk];
	begin = lanes_begin(p->n_samples, p->n_lanes, lane);
	end = lanes_begin(p->n_samples, p->n_lanes, lane + 1);
	*ret_skip = begin > place ? begin - place : 0;
	return (end < place + n ? end - place : n) - *ret_skip;
}

/* Finds where chunks begin, and how many samples there are. */
static int plan_count(struct shuffle_plan *p, const uint32_t *chunk_samples)
{
	p->first_sample = calloc(p->n_chunks + 1, sizeof(*p->first_sample));
	if (!p->first_sample)
		return -ENOMEM;
	for (uint64_t i = 0; i < p->n_chunks; i++)
		p->first_sample[i + 1] = p->first_sample[i] + chunk_samples[i];
	p->n_samples = p->first_sample[p->n_chunks];
	if (p->subset && subset_n_samples(p->subset) != p->n_samples)
		return -EINVAL;
	if (p->subset)
		p->n_samples = subset_count(p->subset);
	return p->n_lanes > 1 && p->n_lanes > p->n_samples ? -EINVAL : 0;
}

/* Lists the chunks and the place where each begins. Without shuffle, chunks stay in storage order. */
static int plan_place(struct shuffle_plan *p, const struct shuffle_spec *spec)
{
	_cleanup_(freep) uint64_t *list = calloc(p->n_chunks + 1, sizeof(*list));
	uint64_t place = 0;
	int r = 0;

	p->place = calloc(p->n_chunks + 1, sizeof(*p->place));
	if (!list || !p->place)
		return -ENOMEM;
	for (uint64_t i = 0; i < p->n_chunks; i++)
		list[i] = i;
	if (p->shuffle)
		r = lanes_deal(spec->base, spec->chunk_samples, p->n_chunks, p->epoch, spec->drift, list);
	for (uint64_t i = 0; r == 0 && i < p->n_chunks; i++) {
		p->place[list[i]] = place;
		place += chunk_count(p, list[i]);
	}
	return r;
}

/* Returns the lanes that a chunk of n samples is in. */
static void lanes_of(const struct shuffle_plan *p, uint64_t chunk, uint64_t n, uint64_t *ret_first,
		     uint64_t *ret_end)
{
	*ret_first = p->place ? lanes_at(p->n_samples, p->n_lanes, p->place[chunk]) : 0;
	*ret_end = p->place ? lanes_at(p->n_samples, p->n_lanes, p->place[chunk] + n - 1) + 1 : 1;
}

/* Lists the visits of each lane, in the order of storage. One lane visits chunks without samples, too. */
static int plan_list_visits(struct shuffle_plan *p)
{
	_cleanup_(freep) uint64_t *filled = calloc(p->n_lanes + 1, sizeof(*filled));
	uint64_t first, end;

	p->lane_visit = calloc(p->n_lanes + 1, sizeof(*p->lane_visit));
	p->visits = calloc(p->n_chunks + p->n_lanes, sizeof(*p->visits));
	if (!filled || !p->lane_visit || !p->visits)
		return -ENOMEM;
	for (int pass = 0; pass < 2; pass++) {
		for (uint64_t i = 0; i < p->n_chunks; i++) {
			uint64_t n = chunk_count(p, i);

			if (n == 0 && (p->subset || p->place))
				continue;
			lanes_of(p, i, n, &first, &end);
			for (uint64_t l = first; l < end; l++) {
				if (pass == 0)
					p->lane_visit[l + 1]++;
				else
					p->visits[p->lane_visit[l] + filled[l]++] = i;
			}
		}
		for (uint64_t l = 0; pass == 0 && l < p->n_lanes; l++)
			p->lane_visit[l + 1] += p->lane_visit[l];
	}
	p->n_visits = p->lane_visit[p->n_lanes];
	return 0;
}

/* Returns the number of chunks by which the lane's first window is shorter. So lanes begin their windows at
 * different steps; otherwise all would read at the same time. */
static uint64_t stagger(const struct shuffle_plan *p, uint64_t lane)
{
	return lane % p->window_chunks;
}

static void plan_order_lane(struct shuffle_plan *p, uint64_t lane)
{
	uint64_t begin = p->lane_visit[lane], n = p->lane_visit[lane + 1] - begin, place = 0, skip;
	uint64_t before = stagger(p, lane);
	uint64_t *first = p->first + p->lane_window[lane];

	if (p->shuffle) {
		struct random_state random;

		random_init(&random, p->seed, p->epoch, STREAM_CHUNKS(lane));
		random_shuffle(&random, p->visits + begin, n);
	}
	for (uint64_t i = 0; i < n; i++) {
		if (i == 0 || (before + i) % p->window_chunks == 0)
			first[(before + i) / p->window_chunks] = place;
		place += lane_part(p, lane, p->visits[begin + i], &skip);
	}
	assert(place == lane_samples(p, lane));
}

static int plan_order(struct shuffle_plan *p)
{
	p->lane_window = calloc(p->n_lanes + 1, sizeof(*p->lane_window));
	p->cursors = calloc(p->n_lanes, sizeof(*p->cursors));
	if (!p->lane_window || !p->cursors)
		return -ENOMEM;
	for (uint64_t l = 0; l < p->n_lanes; l++) {
		uint64_t n = stagger(p, l) + p->lane_visit[l + 1] - p->lane_visit[l];

		p->lane_window[l + 1] =
		    p->lane_window[l] + n / p->window_chunks + (n % p->window_chunks != 0);
		p->cursors[l].window = NO_WINDOW;
	}
	p->n_windows = p->lane_window[p->n_lanes];
	p->first = calloc(p->n_windows + 1, sizeof(*p->first));
	if (!p->first)
		return -ENOMEM;
	for (uint64_t l = 0; l < p->n_lanes; l++)
		plan_order_lane(p, l);
	p->first[p->n_windows] = lane_samples(p, p->n_lanes - 1);
	return 0;
}

static int plan_make(struct shuffle_plan *p, const struct shuffle_spec *spec)
{
	int r = plan_count(p, spec->chunk_samples);

	if (r == 0 && p->n_lanes > 1)
		r = plan_place(p, spec);
	if (r == 0)
		r = plan_list_visits(p);
	if (r == 0)
		r = plan_order(p);
	if (r == 0)
		r = shuffle_cut_init(&p->cut, p->n_samples, spec->start, spec->rank, spec->world, spec->batch,
				     spec->drop_last);
	return r;
}

int shuffle_plan_new(const struct shuffle_spec *spec, struct shuffle_plan **ret)
{
	if (spec->window_chunks == 0 || spec->world == 0 || spec->rank >= spec->world || spec->batch == 0 ||
	    spec->lanes > MAX_LANES ||
	    spec->n_chunks >= SIZE_MAX / sizeof(struct shuffle_cursor) - MAX_LANES ||
	    (spec->lanes > 1 && spec->shuffle && !spec->base))
		return -EINVAL;
	struct shuffle_plan *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->seed = spec->seed;
	p->epoch = spec->epoch;
	p->window_chunks = spec->window_chunks;
	p->shuffle = spec->shuffle;
	p->subset = spec->subset;
	p->n_chunks = spec->n_chunks;
	p->n_lanes = spec->lanes > 1 ? spec->lanes : 1;
	int r = plan_make(p, spec);

	if (r < 0) {
		shuffle_plan_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

int shuffle_chunk_lanes(const struct shuffle_spec *spec, uint32_t *first, uint32_t *end)
{
	struct shuffle_plan p = {.epoch = spec->epoch,
				 .shuffle = spec->shuffle,
				 .subset = spec->subset,
				 .n_chunks = spec->n_chunks,
				 .n_lanes = spec->lanes > 1 ? spec->lanes : 1};
	int r = plan_count(&p, spec->chunk_samples);

	if (r == 0 && p.n_lanes > 1)
		r = plan_place(&p, spec);
	for (uint64_t i = 0; r == 0 && i < p.n_chunks; i++) {
		uint64_t n = chunk_count(&p, i), first_lane = 0, end_lane = 0;

		if (n > 0)
			lanes_of(&p, i, n, &first_lane, &end_lane);
		first[i] = (uint32_t)first_lane;
		end[i] = (uint32_t)end_lane;
	}
	free(p.first_sample);
	free(p.place);
	return r;
}

void shuffle_plan_free(struct shuffle_plan *plan)
{
	if (!plan)
		return;
	for (uint64_t l = 0; plan->cursors && l < plan->n_lanes; l++)
		free(plan->cursors[l].samples);
	free(plan->first_sample);
	free(plan->place);
	free(plan->lane_visit);
	free(plan->lane_window);
	free(plan->visits);
	free(plan->first);
	free(plan->cursors);
	free(plan);
}

uint64_t shuffle_n_batches(const struct shuffle_plan *plan)
{
	return plan->cut.n_steps;
}

uint32_t shuffle_max_batch(const struct shuffle_plan *plan)
{
	return plan->cut.max_batch;
}

int shuffle_count(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
		  struct shuffle_counts *ret)
{
	struct shuffle_cut cut;
	int r = shuffle_cut_init(&cut, n_samples, start, 0, world, batch, drop_last);

	if (r < 0)
		return r;
	*ret = (struct shuffle_counts){cut.first_step, cut.n_steps, cut.max_batch};
	return 0;
}

uint64_t shuffle_position(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, bool drop_last,
			  uint64_t index)
{
	uint64_t first = n_samples, n;
	struct shuffle_cut cut;

	if (shuffle_cut_init(&cut, n_samples, start, 0, world, batch, drop_last) == 0)
		(void)shuffle_cut_step(&cut, index < cut.first_step ? cut.first_step : index, &first, &n);
	return first;
}

uint64_t shuffle_count_chunks(const struct subset *subset, const uint32_t *chunk_samples, uint64_t n_chunks,
			      uint32_t *ret_counts)
{
	uint64_t first = 0, n_visits = 0;

	for (uint64_t i = 0; i < n_chunks; i++) {
		uint32_t n = chunk_samples[i];

		ret_counts[i] = subset ? (uint32_t)subset_count_range(subset, first, first + n) : n;
		n_visits += !subset || ret_counts[i] > 0;
		first += n;
	}
	return n_visits;
}

uint64_t shuffle_n_windows(const struct shuffle_plan *plan)
{
	return plan->n_windows;
}

uint64_t shuffle_window_place(const struct shuffle_plan *plan, uint64_t w)
{
	assert(w < plan->n_windows);
	return plan->first[w];
}

uint64_t shuffle_n_lanes(const struct shuffle_plan *plan)
{
	return plan->n_lanes;
}

uint64_t shuffle_window_lane(const struct shuffle_plan *plan, uint64_t w)
{
	assert(w < plan->n_windows);
	return lane_of_window(plan, w);
}

void shuffle_lane_windows(const struct shuffle_plan *plan, uint64_t lane, uint64_t *ret_first,
			  uint64_t *ret_end)
{
	assert(lane < plan->n_lanes);
	*ret_first = plan->lane_window[lane];
	*ret_end = plan->lane_window[lane + 1];
}

uint64_t shuffle_lane_samples(const struct shuffle_plan *plan, uint64_t lane)
{
	assert(lane < plan->n_lanes);
	return lane_samples(plan, lane);
}

uint64_t shuffle_chunk_visit(const struct shuffle_plan *plan, uint64_t i)
{
	assert(i < plan->n_visits);
	return plan->visits[i];
}

void shuffle_window_visits(const struct shuffle_plan *plan, uint64_t w, uint64_t *ret_first,
			   uint64_t *ret_end)
{
	uint64_t lane = lane_of_window(plan, w), before = stagger(plan, lane), begin = plan->lane_visit[lane],
		 first = (w - plan->lane_window[lane]) * plan->window_chunks;

	*ret_first = begin + (first > before ? first - before : 0);
	*ret_end = min_u64(begin + first + plan->window_chunks - before, plan->lane_visit[lane + 1]);
}

/* Returns the window that contains a place of a lane. */
static uint64_t window_at(const struct shuffle_plan *p, uint64_t lane, uint64_t place)
{
	uint64_t begin = p->lane_window[lane], n = p->lane_window[lane + 1] - begin;

	/* Take the last window that starts at or before the place; empty windows may start at the same place.
	 * One always exists, since the first window starts at 0. */
	return begin + sorted_count(n, i, p->first[begin + i] <= place) - 1;
}

/* Returns the position in its lane at which a window ends. */
static uint64_t window_end(const struct shuffle_plan *p, uint64_t lane, uint64_t w)
{
	return w + 1 < p->lane_window[lane + 1] ? p->first[w + 1] : lane_samples(p, lane);
}

/* Writes the chunk's samples that are in the lane, from index `filled` on. Returns the new number of filled
 * entries. */
static uint64_t list_samples(const struct shuffle_plan *p, uint64_t lane, uint64_t chunk, uint64_t *samples,
			     uint64_t filled)
{
	uint64_t s = p->first_sample[chunk], skip, n = lane_part(p, lane, chunk, &skip);

	if (p->subset && n > 0) {
		s = subset_sample(p->subset, subset_count_range(p->subset, 0, s) + skip);
		skip = 0;
	}
	for (s += skip; n > 0; n--) {
		samples[filled++] = s;
		s = p->subset ? subset_next(p->subset, s + 1) : s + 1;
	}
	return filled;
}

/* Fills the lane's cursor with window w. */
static int load_window(struct shuffle_plan *p, uint64_t lane, uint64_t w)
{
	struct shuffle_cursor *c = &p->cursors[lane];
	uint64_t n = window_end(p, lane, w) - p->first[w], filled = 0, visit, end;

	if (c->window == w)
		return 0;
	if (n > c->capacity) {
		uint64_t *grown = reallocarray(c->samples, n, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		c->samples = grown;
		c->capacity = n;
	}
	shuffle_window_visits(p, w, &visit, &end);
	for (; visit < end; visit++)
		filled = list_samples(p, lane, p->visits[visit], c->samples, filled);
	assert(filled == n);
	if (p->shuffle) {
		struct random_state random;

		random_init(&random, p->seed, p->epoch, STREAM_WINDOW(lane, w - p->lane_window[lane]));
		random_shuffle(&random, c->samples, n);
	}
	c->window = w;
	return 0;
}

/* ---- steps ---- */

/* Returns how many of a step's positions belong to lanes below this one. */
static uint64_t lower_lanes(const struct shuffle_plan *p, uint64_t step, uint64_t n, uint64_t lane)
{
	return lanes_lower_before(step + n, p->n_lanes, lane) - lanes_lower_before(step, p->n_lanes, lane);
}

/* Returns true if each lane belongs to certain ranks, which share its samples of each step. */
static bool lane_has_ranks(const struct shuffle_plan *p)
{
	return p->n_lanes > 1 && p->cut.world % p->n_lanes == 0;
}

/* Returns the rank's part of a step. */
static int slice(const struct shuffle_plan *p, uint64_t step, uint32_t rank, uint64_t *ret_first,
		 uint32_t *ret_count)
{
	uint64_t begin, n, each, extra, first = 0, ranks = p->cut.world, k = rank;
	int r = shuffle_cut_step(&p->cut, step, &begin, &n);

	if (r < 0)
		return r;
	if (lane_has_ranks(p)) {
		uint64_t lane;

		ranks /= p->n_lanes;
		lane = rank / ranks;
		k = rank % ranks;
		first = lower_lanes(p, begin, n, lane);
		n = lower_lanes(p, begin, n, lane + 1) - first;
	}
	/* The first `extra` ranks take one more. */
	each = n / ranks;
	extra = n % ranks;
	*ret_first = begin + first + k * each + min_u64(k, extra);
	*ret_count = (uint32_t)(each + (k < extra));
	return 0;
}

int shuffle_batch_range(const struct shuffle_plan *plan, uint64_t batch, uint64_t *ret_first,
			uint32_t *ret_count)
{
	return slice(plan, batch, plan->cut.rank, ret_first, ret_count);
}

/* Widens [*first, *end) by the lanes that the rank may take samples from in a step of n samples that begins
 * anywhere. */
static void add_lanes(const struct shuffle_plan *p, uint64_t n, uint64_t *first, uint64_t *end)
{
	uint64_t lanes = p->n_lanes, ranks = p->cut.world, rank = p->cut.rank, q = n / lanes,
		 rest = n % lanes;
	uint64_t from = rank * (n / ranks) + min_u64(rank, n % ranks),
		 to = from + n / ranks + (rank < n % ranks);

	if (n == 0)
		return;
	/* Lane l ends at (l + 1) q + min(l + 1, rest) or before, and begins at l q + max(0, l + rest - L) or
	 * after. */
	*first = min_u64(*first, sorted_count(lanes, l, (l + 1) * q + min_u64(l + 1, rest) <= from));
	*end = max_u64(*end, sorted_count(lanes, l, l * q + (l + rest > lanes ? l + rest - lanes : 0) < to));
}

void shuffle_rank_lanes(const struct shuffle_plan *plan, uint64_t *ret_first, uint64_t *ret_end)
{
	const struct shuffle_cut *cut = &plan->cut;

	if (lane_has_ranks(plan)) {
		*ret_first = cut->rank / (cut->world / plan->n_lanes);
		*ret_end = *ret_first + 1;
		return;
	}
	*ret_first = plan->n_lanes;
	*ret_end = 0;
	add_lanes(plan, cut->n_full ? cut->step_samples : 0, ret_first, ret_end);
	add_lanes(plan, cut->tail_samples[0], ret_first, ret_end);
	add_lanes(plan, cut->tail_samples[1], ret_first, ret_end);
	*ret_first = min_u64(*ret_first, *ret_end);
}

/* Consecutive samples of one lane: its places [first, first + n). */
struct chunk_run {
	uint64_t lane, first, n;
};

/* Returns how many of the positions below p belong to lane l. */
static uint64_t lanes_own_before(uint64_t p, uint64_t lanes, uint64_t l)
{
	return p / lanes + (p % lanes > l);
}

/* Returns the batch's run of samples in its first lane, within places [at, end) of the sorted step. */
static struct chunk_run run_at(const struct shuffle_plan *p, uint64_t step, uint64_t n, uint64_t at,
			       uint64_t end)
{
	struct chunk_run run = {.lane = sorted_count(p->n_lanes, l, lower_lanes(p, step, n, l) <= at) - 1};
	uint64_t lower = lower_lanes(p, step, n, run.lane), above = lower_lanes(p, step, n, run.lane + 1);

	run.first = lanes_own_before(step, p->n_lanes, run.lane) + at - lower;
	run.n = (above < end ? above : end) - at;
	return run;
}

static int copy_run(struct shuffle_plan *p, const struct chunk_run *run, uint64_t *samples)
{
	for (uint64_t place = run->first, end = run->first + run->n; place < end;) {
		uint64_t w = window_at(p, run->lane, place), until = window_end(p, run->lane, w);
		int r = load_window(p, run->lane, w);

		if (r < 0)
			return r;
		for (; place < end && place < until; place++)
			*samples++ = p->cursors[run->lane].samples[place - p->first[w]];
	}
	return 0;
}

int shuffle_batch(struct shuffle_plan *plan, uint64_t batch, uint64_t *samples, uint32_t *ret_count)
{
	uint64_t first, step = 0, n = 0;
	uint32_t count;
	int r = shuffle_batch_range(plan, batch, &first, &count);

	if (r < 0)
		return r;
	(void)shuffle_cut_step(&plan->cut, batch, &step, &n);
	for (uint64_t at = first - step, end = at + count; at < end;) {
		struct chunk_run run = run_at(plan, step, n, at, end);

		r = copy_run(plan, &run, samples);
		if (r < 0)
			return r;
		at += run.n;
		samples += run.n;
	}
	*ret_count = count;
	return 0;
}

int shuffle_batch_windows(const struct shuffle_plan *plan, uint64_t batch, uint64_t *windows, uint32_t *ret_n)
{
	uint64_t first, step = 0, n = 0;
	uint32_t count, n_windows = 0;
	int r = shuffle_batch_range(plan, batch, &first, &count);

	if (r < 0)
		return r;
	(void)shuffle_cut_step(&plan->cut, batch, &step, &n);
	for (uint64_t at = first - step, end = at + count; at < end;) {
		struct chunk_run run = run_at(plan, step, n, at, end);
		uint64_t last = window_at(plan, run.lane, run.first + run.n - 1);

		/* At most one window per sample: empty windows lie only between the ends of lanes. */
		for (uint64_t w = window_at(plan, run.lane, run.first); w <= last; w++) {
			if (window_end(plan, run.lane, w) > plan->first[w])
				windows[n_windows++] = w;
		}
		at += run.n;
	}
	*ret_n = n_windows;
	return 0;
}
