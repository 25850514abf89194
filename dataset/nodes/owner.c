/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/owner.h"

#include <math.h>
#include <string.h>

#include "dataset/checksum/checksum.h"

#define LN_2         0.69314718055994530942
#define LN_TERMS     25 /* terms of the series; the last one is below 1e-18 of the sum */
#define MANTISSA_TOP 0.70710678118654752440

/* Returns the natural logarithm of x in (0, 1). Uses only the four operations whose results IEEE 754 defines
 * exactly: all nodes must get the same result, and libraries differ in the last bit. (This file is compiled
 * without contraction of floating-point expressions.) */
static double logarithm(double x)
{
	int exponent;
	double m = frexp(x, &exponent), t, square, sum = 0;

	if (m < MANTISSA_TOP) {
		m *= 2;
		exponent--;
	}
	t = (m - 1) / (m + 1);
	square = t * t;
	for (int k = LN_TERMS; k >= 1; k -= 2)
		sum = sum * square + 1.0 / k;
	return exponent * LN_2 + 2 * t * sum;
}

static double score(uint64_t name_hash, double weight, const struct chunk_id *chunk)
{
	uint8_t text[sizeof(name_hash) + sizeof(chunk->bytes)];
	uint64_t drawn;

	for (size_t i = 0; i < sizeof(name_hash); i++)
		text[i] = (uint8_t)(name_hash >> (8 * i));
	memcpy(text + sizeof(name_hash), chunk->bytes, sizeof(chunk->bytes));
	drawn = checksum_xxh3(text, sizeof(text));
	return weight / -logarithm(((double)(drawn >> 12) + 0.5) * 0x1p-52);
}

uint64_t owner_hash(const char *node)
{
	return checksum_xxh3(node, strlen(node));
}

bool owner_lanes_ok(const struct owner_lanes *lanes)
{
	uint32_t end = 0;

	if (lanes->n_runs > OWNER_RUNS_MAX)
		return false;
	for (uint32_t i = 0; i < lanes->n_runs; i++) {
		const struct owner_run *run = &lanes->runs[i];

		if (run->first >= run->end || run->end > lanes->lanes || (i > 0 && run->first <= end))
			return false;
		end = run->end;
	}
	return true;
}

uint32_t owner_lanes_count(const struct owner_lanes *lanes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < lanes->n_runs; i++)
		n += lanes->runs[i].end - lanes->runs[i].first;
	return n;
}

bool owner_lanes_have(const struct owner_lanes *lanes, const struct owner_place *place)
{
	if (lanes->lanes != place->lanes || lanes->drift != place->drift)
		return false;
	for (uint32_t i = 0; i < lanes->n_runs; i++) {
		if (lanes->runs[i].first < place->end && place->first < lanes->runs[i].end)
			return true;
	}
	return false;
}

void owner_lanes_add(struct owner_lanes *lanes, uint32_t first, uint32_t end)
{
	struct owner_run runs[OWNER_RUNS_MAX + 1], new = {first, end};
	uint32_t n = 0, nearest = 1;
	bool is_in = false;

	for (uint32_t i = 0; i < lanes->n_runs; i++) {
		const struct owner_run run = lanes->runs[i];

		if (run.end < new.first) {
			runs[n++] = run;
		} else if (run.first > new.end) {
			if (!is_in)
				runs[n++] = new;
			is_in = true;
			runs[n++] = run;
		} else {
			new.first = run.first < new.first ? run.first : new.first;
			new.end = run.end > new.end ? run.end : new.end;
		}
	}
	if (!is_in)
		runs[n++] = new;
	for (uint32_t i = 2; n > OWNER_RUNS_MAX && i < n; i++) {
		if (runs[i].first - runs[i - 1].end < runs[nearest].first - runs[nearest - 1].end)
			nearest = i;
	}
	if (n > OWNER_RUNS_MAX) {
		runs[nearest - 1].end = runs[nearest].end;
		memmove(&runs[nearest], &runs[nearest + 1], (--n - nearest) * sizeof(*runs));
	}
	memset(lanes->runs, 0, sizeof(lanes->runs)); /* equal lanes must be equal byte for byte */
	memcpy(lanes->runs, runs, n * sizeof(*runs));
	lanes->n_runs = n;
}

/* Returns true if the member can own the chunk; place: NULL: wherever it lies. */
static bool serves(const struct owner_member *m, const struct owner_place *place)
{
	return !m->is_unreachable && (!place || owner_lanes_have(&m->lanes, place));
}

size_t owner_of(const struct owner_member *members, size_t n, const struct chunk_id *chunk,
		const struct owner_place *place)
{
	bool is_weighted = false, is_served = false;
	size_t best = SIZE_MAX;
	double best_score = 0;

	for (size_t i = 0; i < n && !is_served; i++)
		is_served = serves(&members[i], place);
	if (!is_served)
		place = NULL;
	for (size_t i = 0; i < n; i++)
		is_weighted |= serves(&members[i], place) && members[i].weight;
	for (size_t i = 0; i < n; i++) {
		const struct owner_member *m = &members[i];

		if (!serves(m, place) || (is_weighted && !m->weight))
			continue;
		double s = score(m->name_hash, is_weighted ? (double)m->weight : 1, chunk);

		/* The name decides between two members with the same score, not their position in the list.
		 */
		if (best == SIZE_MAX || s > best_score ||
		    (s == best_score && m->name_hash > members[best].name_hash)) {
			best = i;
			best_score = s;
		}
	}
	return best;
}
