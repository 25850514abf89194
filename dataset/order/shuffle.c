/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/shuffle.h"

#include "dataset/subset.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "lib/sorted.h"
#include "random.h"
#include "shuffle_cut.h"

/* Streams of randomness within one (seed, epoch): one for the chunks, one for each window. */
#define STREAM_CHUNKS    0
#define STREAM_WINDOW(w) (1 + (w))
#define NO_WINDOW        UINT64_MAX

struct shuffle_plan {
	struct shuffle_cut cut;
	uint64_t seed, epoch;
	uint32_t window_chunks;
	bool shuffle;
	const struct subset *subset;
	uint64_t n_chunks, n_visits, n_windows;
	uint64_t *first_sample;   /* n_chunks + 1: number of each chunk's first sample */
	uint64_t *visits;         /* n_visits: the chunk that is visited i-th */
	uint64_t *first_position; /* n_windows + 1: global position of each window's first sample */

	/* The cursor: the samples of one window in visiting order. */
	uint64_t window;
	uint64_t *window_samples;
	uint64_t window_capacity;
};

static uint64_t chunk_count(const struct shuffle_plan *p, uint64_t chunk)
{
	uint64_t first = p->first_sample[chunk], end = p->first_sample[chunk + 1];

	return p->subset ? subset_count_range(p->subset, first, end) : end - first;
}

/* Finds where chunks begin, and lists those to visit, in the order of storage. */
static int plan_list_chunks(struct shuffle_plan *p, const uint32_t *chunk_samples)
{
	p->first_sample = calloc(p->n_chunks + 1, sizeof(*p->first_sample));
	p->visits = calloc(p->n_chunks + 1, sizeof(*p->visits));
	if (!p->first_sample || !p->visits)
		return -ENOMEM;
	for (uint64_t i = 0; i < p->n_chunks; i++)
		p->first_sample[i + 1] = p->first_sample[i] + chunk_samples[i];
	if (p->subset && subset_n_samples(p->subset) != p->first_sample[p->n_chunks])
		return -EINVAL;
	for (uint64_t i = 0; i < p->n_chunks; i++) {
		if (!p->subset || chunk_count(p, i) > 0)
			p->visits[p->n_visits++] = i;
	}
	return 0;
}

static int plan_order(struct shuffle_plan *p)
{
	uint64_t position = 0;

	p->n_windows = p->n_visits / p->window_chunks + (p->n_visits % p->window_chunks != 0);
	p->first_position = calloc(p->n_windows + 1, sizeof(*p->first_position));
	if (!p->first_position)
		return -ENOMEM;
	if (p->shuffle) {
		struct random_state random;

		random_init(&random, p->seed, p->epoch, STREAM_CHUNKS);
		random_shuffle(&random, p->visits, p->n_visits);
	}
	for (uint64_t i = 0; i < p->n_visits; i++) {
		if (i % p->window_chunks == 0)
			p->first_position[i / p->window_chunks] = position;
		position += chunk_count(p, p->visits[i]);
	}
	p->first_position[p->n_windows] = position;
	return 0;
}

int shuffle_plan_new(const struct shuffle_spec *spec, struct shuffle_plan **ret)
{
	if (spec->window_chunks == 0 || spec->world == 0 || spec->rank >= spec->world || spec->batch == 0 ||
	    spec->n_chunks >= SIZE_MAX / sizeof(uint64_t) - 1)
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
	p->window = NO_WINDOW;
	int r = plan_list_chunks(p, spec->chunk_samples);

	if (r == 0)
		r = plan_order(p);
	if (r == 0)
		r = shuffle_cut_init(&p->cut, p->first_position[p->n_windows], spec->rank, spec->world,
				     spec->batch, spec->drop_last);
	if (r < 0) {
		shuffle_plan_free(p);
		return r;
	}
	*ret = p;
	return 0;
}

void shuffle_plan_free(struct shuffle_plan *plan)
{
	if (!plan)
		return;
	free(plan->first_sample);
	free(plan->visits);
	free(plan->first_position);
	free(plan->window_samples);
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

int shuffle_count(uint64_t n_samples, uint32_t world, uint32_t batch, bool drop_last, uint64_t *ret_n_batches,
		  uint32_t *ret_max_batch)
{
	struct shuffle_cut cut;
	int r = shuffle_cut_init(&cut, n_samples, 0, world, batch, drop_last);

	if (r < 0)
		return r;
	*ret_n_batches = cut.n_steps;
	*ret_max_batch = cut.max_batch;
	return 0;
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

int shuffle_batch_range(const struct shuffle_plan *plan, uint64_t batch, uint64_t *ret_first,
			uint32_t *ret_count)
{
	return shuffle_cut_range(&plan->cut, batch, ret_first, ret_count);
}

uint64_t shuffle_n_windows(const struct shuffle_plan *plan)
{
	return plan->n_windows;
}

uint64_t shuffle_window_chunks(const struct shuffle_plan *plan)
{
	return plan->window_chunks;
}

uint64_t shuffle_window_first(const struct shuffle_plan *plan, uint64_t w)
{
	assert(w <= plan->n_windows);
	return plan->first_position[w];
}

uint64_t shuffle_n_visits(const struct shuffle_plan *plan)
{
	return plan->n_visits;
}

uint64_t shuffle_chunk_visit(const struct shuffle_plan *plan, uint64_t i)
{
	assert(i < plan->n_visits);
	return plan->visits[i];
}

uint64_t shuffle_window_of(const struct shuffle_plan *plan, uint64_t position)
{
	assert(position < plan->first_position[plan->n_windows]);
	/* The last window that starts at or before the position: empty windows before it may start there too.
	 * There always is one, since window 0 starts at 0. */
	return sorted_count(plan->n_windows, i, plan->first_position[i] <= position) - 1;
}

/* Lists the samples of a chunk from `filled` on; returns what is filled then. */
static uint64_t plan_list_samples(struct shuffle_plan *p, uint64_t chunk, uint64_t filled)
{
	uint64_t end = p->first_sample[chunk + 1];

	for (uint64_t s = p->first_sample[chunk]; s < end; s++) {
		if (p->subset && (s = subset_next(p->subset, s)) >= end)
			break;
		p->window_samples[filled++] = s;
	}
	return filled;
}

/* Fills the cursor with window w. */
static int plan_load_window(struct shuffle_plan *p, uint64_t w)
{
	uint64_t n = p->first_position[w + 1] - p->first_position[w], filled = 0;

	if (p->window == w)
		return 0;
	if (n > p->window_capacity) {
		uint64_t *grown = reallocarray(p->window_samples, n, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		p->window_samples = grown;
		p->window_capacity = n;
	}
	uint64_t visit = w * p->window_chunks;

	for (uint32_t i = 0; i < p->window_chunks && visit < p->n_visits; i++, visit++)
		filled = plan_list_samples(p, p->visits[visit], filled);
	assert(filled == n);
	if (p->shuffle) {
		struct random_state random;

		random_init(&random, p->seed, p->epoch, STREAM_WINDOW(w));
		random_shuffle(&random, p->window_samples, n);
	}
	p->window = w;
	return 0;
}

int shuffle_batch(struct shuffle_plan *plan, uint64_t batch, uint64_t *samples, uint32_t *ret_count)
{
	uint64_t position;
	uint32_t count, filled = 0;
	int r = shuffle_batch_range(plan, batch, &position, &count);

	if (r < 0)
		return r;
	while (filled < count) {
		uint64_t w = shuffle_window_of(plan, position);

		r = plan_load_window(plan, w);
		if (r < 0)
			return r;
		for (; filled < count && position < plan->first_position[w + 1]; position++)
			samples[filled++] = plan->window_samples[position - plan->first_position[w]];
	}
	*ret_count = count;
	return 0;
}

/* ---- what some ranks take of a window ---- */

/* Of a chunk of the window. */
struct place {
	uint64_t first_sample, first_word;
};

static uint64_t window_end(const struct shuffle_plan *p, uint64_t w)
{
	uint64_t end = (w + 1) * p->window_chunks;

	return end < p->n_visits ? end : p->n_visits;
}

uint64_t shuffle_window_words(const struct shuffle_plan *plan, uint64_t w, uint64_t *ret_first)
{
	uint64_t begin = w * plan->window_chunks, n = 0;

	for (uint64_t i = begin; i < window_end(plan, w); i++) {
		uint64_t chunk = plan->visits[i];

		if (ret_first)
			ret_first[i - begin] = n;
		n += subset_words(plan->first_sample[chunk + 1] - plan->first_sample[chunk]);
	}
	return n;
}

static int by_sample(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->first_sample < y->first_sample ? -1 : x->first_sample > y->first_sample;
}

static int list_places(const struct shuffle_plan *p, uint64_t w, struct place **ret, uint64_t *ret_n)
{
	uint64_t begin = w * p->window_chunks, n = window_end(p, w) - begin, n_places = 0, word = 0;
	struct place *places = calloc(n + 1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	for (uint64_t i = begin; i < begin + n; i++) {
		uint64_t first = p->first_sample[p->visits[i]], end = p->first_sample[p->visits[i] + 1];

		if (end > first) /* a chunk without samples begins where another one does */
			places[n_places++] = (struct place){first, word};
		word += subset_words(end - first);
	}
	qsort(places, n_places, sizeof(*places), by_sample);
	*ret = places;
	*ret_n = n_places;
	return 0;
}

static void mark_sample(const struct place *places, uint64_t n, uint64_t sample, uint64_t *words)
{
	const struct place *at = &places[sorted_count(n, i, places[i].first_sample <= sample) - 1];
	uint64_t k = sample - at->first_sample;

	words[at->first_word + k / 64] |= UINT64_C(1) << (k % 64);
}

/* The step in which this position is, or the first one of the steps behind the full ones. */
static uint64_t step_near(const struct shuffle_cut *cut, uint64_t position)
{
	uint64_t step = position / cut->step_samples;

	return step < cut->n_full ? step : cut->n_full;
}

int shuffle_window_mark(struct shuffle_plan *plan, uint64_t w, const uint64_t *ranks, uint64_t *words)
{
	uint64_t begin = plan->first_position[w], end = plan->first_position[w + 1], n_places = 0, first;
	struct shuffle_cut cut = plan->cut;
	struct place *places = NULL;
	uint32_t n;
	int r = plan_load_window(plan, w);

	if (r == 0)
		r = list_places(plan, w, &places, &n_places);
	if (r < 0)
		return r;
	for (uint64_t step = step_near(&cut, begin); step < cut.n_steps; step++) {
		for (cut.rank = 0; cut.rank < cut.world; cut.rank++) {
			if (!(ranks[cut.rank / 64] >> (cut.rank % 64) & 1))
				continue;
			(void)shuffle_cut_range(&cut, step, &first, &n);
			for (uint64_t p = first > begin ? first : begin; p < first + n && p < end; p++)
				mark_sample(places, n_places, plan->window_samples[p - begin], words);
		}
		cut.rank = cut.world - 1;
		(void)shuffle_cut_range(&cut, step, &first, &n);
		if (first + n >= end)
			break;
	}
	free(places);
	return 0;
}
