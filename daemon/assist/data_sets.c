/* SPDX-License-Identifier: Apache-2.0 */
#include "data_sets.h"

#include <errno.h>
#include <string.h>

#define OTHER_SHARE 10 /* at most 1 in this many known samples may have other files, for the set to match */

static struct data_pass *pass_of(const struct data_sets *s, uint64_t id)
{
	const struct data_pass *p = &s->passes[id % DATA_PASSES];

	return id && p->id == id ? (struct data_pass *)p : NULL;
}

static struct data_pass *pass_new(struct data_sets *s)
{
	uint64_t id = ++s->n_passes;
	struct data_pass *p = &s->passes[id % DATA_PASSES];

	*p = (struct data_pass){.id = id, .set = -1};
	return p;
}

uint64_t data_sets_written(struct data_sets *s, uint64_t id, int64_t before, uint32_t number)
{
	struct data_pass *p = before >= 0 && (int64_t)number > before ? pass_of(s, id) : NULL;
	uint64_t bit = UINT64_C(1) << number % 64;

	if (p)
		return p->id;
	/* All workers of a pass get their first batches before one is done. The order of the pipes varies,
	 * because each is written by its own thread. */
	p = pass_of(s, s->n_passes);
	if (!p || p->id == id || p->begun || (p->seen & bit))
		p = pass_new(s);
	p->seen |= bit;
	return p->id;
}

int data_sets_guess(const struct data_sets *s, uint64_t id)
{
	const struct data_pass *p = pass_of(s, id);
	int only = -1;

	if (!p || p->settled)
		return p ? p->set : -1;
	for (int i = 0; i < FILE_TABLE_SETS; i++) {
		if (!s->per_sample[i] || i == p->set || p->is_not[i])
			continue;
		if (only >= 0)
			return -1;
		only = i;
	}
	return only >= 0 ? only : p->set;
}

uint32_t data_names_bytes(const char *names, uint32_t per_sample)
{
	size_t n = 0;

	for (uint32_t k = 0; k < per_sample; k++)
		n += strlen(names + n) + 1;
	return (uint32_t)n;
}

struct likeness {
	uint32_t same, other;
};

static struct likeness compare(const struct data_sets *s, int set, const struct data_batch *b)
{
	struct likeness l = {0};
	const char *names = b->names;

	if (s->per_sample[set] != b->per_sample)
		return (struct likeness){.other = b->n};
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t bytes = data_names_bytes(names, b->per_sample);
		enum file_table_result r = file_table_compare(&s->table, set, b->indices[i], names, bytes);

		l.same += r == FILE_TABLE_SAME;
		l.other += r == FILE_TABLE_OTHER;
		names += bytes;
	}
	return l;
}

/* Returns the set that the batch's files belong to, or -1. Marks the sets to which it cannot belong. */
static int recognise(const struct data_sets *s, struct data_pass *p, const struct data_batch *b,
		     uint32_t *n_wrong)
{
	int guess = data_sets_guess(s, p->id), best = -1;
	uint32_t most = 0;

	for (int i = 0; i < FILE_TABLE_SETS; i++) {
		struct likeness l;

		if (!s->per_sample[i] || i == p->set || p->is_not[i])
			continue;
		l = compare(s, i, b);
		p->is_not[i] = l.other > (l.same + l.other) / OTHER_SHARE;
		if (p->is_not[i] && i == guess)
			*n_wrong = s->per_sample[i] == b->per_sample ? l.other : 0;
		if (p->is_not[i] || l.same <= most)
			continue;
		most = l.same;
		best = i;
	}
	return best;
}

/* Starts an empty set. Returns its number, or -1: there are too many. */
static int set_new(struct data_sets *s, uint32_t per_sample)
{
	int i = 0;

	while (i < FILE_TABLE_SETS && s->per_sample[i])
		i++;
	if (i == FILE_TABLE_SETS)
		return -1;
	s->per_sample[i] = per_sample;
	for (int k = 0; k < DATA_PASSES; k++)
		s->passes[k].is_not[i] = false;
	return i;
}

static void join(struct data_sets *s, int from, int to)
{
	file_table_move(&s->table, from, to);
	s->per_sample[from] = 0;
	for (int k = 0; k < DATA_PASSES; k++)
		if (s->passes[k].set == from)
			s->passes[k].set = to;
}

/* Returns the largest set that the pass can still be, although none of its samples is known in that set; or
 * -1. */
static int any_set(const struct data_sets *s, const struct data_pass *p, uint32_t per_sample)
{
	int found = -1;

	for (int i = 0; i < FILE_TABLE_SETS; i++)
		if (!p->is_not[i] && s->per_sample[i] == per_sample &&
		    (found < 0 || s->table.sets[i].n > s->table.sets[found].n))
			found = i;
	return found;
}

int data_sets_settle(struct data_sets *s, uint64_t *id, const struct data_batch *b, uint32_t *n_wrong)
{
	struct data_pass *p = pass_of(s, *id);
	int found;

	*n_wrong = 0;
	if (!p)
		p = pass_new(s);
	*id = p->id;
	p->begun = true;
	if (p->settled)
		return p->set;
	found = recognise(s, p, b, n_wrong);
	/* Sets that have files in common with one batch are the same set. */
	for (int i = 0; found >= 0 && i < FILE_TABLE_SETS; i++)
		if (i != found && i != p->set && s->per_sample[i] && !p->is_not[i] &&
		    compare(s, i, b).same > 0)
			join(s, i, found);
	if (found < 0 && p->set >= 0)
		return p->set;
	if (found < 0) {
		p->set = set_new(s, b->per_sample);
		if (p->set >= 0)
			return p->set;
		found = any_set(s, p, b->per_sample);
		if (found < 0)
			return -ENOSPC;
	} else if (p->set >= 0) {
		join(s, p->set, found);
	}
	p->set = found;
	p->settled = true;
	return found;
}
