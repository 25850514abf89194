/* SPDX-License-Identifier: Apache-2.0 */
#include "lanes.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/shuffle.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"
#include "random.h"

#define DEAL_SEED  (UINT64_MAX - 1)
#define DEAL_BLOCK 64 /* chunks of similar size that are shuffled among themselves */

uint64_t lanes_begin(uint64_t n, uint64_t lanes, uint64_t l)
{
	uint64_t extra = n % lanes;

	return l * (n / lanes) + (l < extra ? l : extra);
}

uint64_t lanes_at(uint64_t n, uint64_t lanes, uint64_t place)
{
	uint64_t each = n / lanes, extra = n % lanes, longer = extra * (each + 1);

	return place < longer ? place / (each + 1) : extra + (place - longer) / each;
}

uint64_t lanes_lower_before(uint64_t p, uint64_t lanes, uint64_t l)
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

int lanes_deal(const uint64_t *base, const uint32_t *samples, uint64_t n, uint64_t epoch, uint32_t m,
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
