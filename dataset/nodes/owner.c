/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/owner.h"

#include <math.h>
#include <string.h>

#include "checksum.h"

#define LN_2         0.69314718055994530942
#define LN_TERMS     25 /* the last one is below 1e-18 of the sum */
#define MANTISSA_TOP 0.70710678118654752440

/* The natural logarithm of x in (0, 1), of the four operations that IEEE 754 gives one result for: all nodes
 * have to find the same, and libraries differ in the last bit. (The room is compiled without contraction.) */
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

size_t owner_of(const struct owner_member *members, size_t n, const struct chunk_id *chunk)
{
	bool is_weighted = false;
	size_t best = SIZE_MAX;
	double best_score = 0;

	for (size_t i = 0; i < n; i++)
		is_weighted |= !members[i].is_away && members[i].weight;
	for (size_t i = 0; i < n; i++) {
		const struct owner_member *m = &members[i];

		if (m->is_away || (is_weighted && !m->weight))
			continue;
		double s = score(m->name_hash, is_weighted ? (double)m->weight : 1, chunk);

		/* Of two with the same score it is not their place in the list that counts. */
		if (best == SIZE_MAX || s > best_score ||
		    (s == best_score && m->name_hash > members[best].name_hash)) {
			best = i;
			best_score = s;
		}
	}
	return best;
}
