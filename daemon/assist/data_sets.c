/* SPDX-License-Identifier: Apache-2.0 */
#include "data_sets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define OTHER_SHARE 10 /* at most 1 in this many known samples may have other files, for the set to match */

/* ---- names of files ---- */

static int space_at(struct data_sets *d, struct data_set *s, uint32_t index)
{
	uint32_t n = s->n_at ? s->n_at : 1024, others = 0, *grown;

	if (index >= DATA_INDICES)
		return -ERANGE;
	if (index < s->n_at)
		return 0;
	while (n <= index)
		n *= 2;
	for (int i = 0; i < DATA_SETS; i++)
		others += &d->sets[i] == s ? 0 : d->sets[i].n_at;
	if (n > DATA_ALL_SETS - others)
		return -ERANGE;
	grown = reallocarray(s->at, n, sizeof(*grown));
	if (!grown)
		return -ERANGE;
	memset(grown + s->n_at, 0, (n - s->n_at) * sizeof(*grown));
	s->at = grown;
	s->n_at = n;
	return 0;
}

static int space_bytes(struct data_sets *d, size_t n_bytes)
{
	uint32_t wanted = d->allocated ? d->allocated : 65536;
	char *grown;

	if (n_bytes > DATA_BYTES - d->used)
		return -ERANGE;
	if (n_bytes <= d->allocated - d->used)
		return 0;
	while (wanted - d->used < n_bytes)
		wanted *= 2;
	grown = realloc(d->names, wanted);
	if (!grown)
		return -ERANGE;
	d->names = grown;
	d->allocated = wanted;
	return 0;
}

/* Returns the bytes of a sample's names. */
static uint32_t names_bytes(const char *names, uint32_t per_sample)
{
	size_t n = 0;

	for (uint32_t k = 0; k < per_sample; k++)
		n += strlen(names + n) + 1;
	return (uint32_t)n;
}

const char *data_sets_find(const struct data_sets *d, int set, uint32_t index)
{
	const struct data_set *s = &d->sets[set];

	return index < s->n_at && s->at[index] ? d->names + s->at[index] - 1 : NULL;
}

/* Compares a sample's names, one after another, with those known for the index. */
static enum data_learnt compare_sample(const struct data_sets *d, int set, uint32_t index, const char *names,
				       size_t n_bytes)
{
	const char *known = data_sets_find(d, set, index);

	if (!known)
		return DATA_NEW;
	return n_bytes <= d->used - (size_t)(known - d->names) && !memcmp(known, names, n_bytes) ? DATA_SAME
												 : DATA_OTHER;
}

int data_sets_learn(struct data_sets *d, int set, uint32_t index, const char **names)
{
	struct data_set *s = &d->sets[set];
	const char *from = *names;
	uint32_t n_bytes = names_bytes(from, s->per_sample);
	enum data_learnt known = compare_sample(d, set, index, from, n_bytes);

	*names += n_bytes;
	if (known != DATA_NEW)
		return (int)known;
	if (space_at(d, s, index) < 0 || space_bytes(d, n_bytes) < 0)
		return -ERANGE;
	memcpy(d->names + d->used, from, n_bytes);
	s->at[index] = d->used + 1;
	d->used += n_bytes;
	s->n++;
	d->n_known++;
	return DATA_NEW;
}

static void set_free(struct data_set *s)
{
	free(s->at);
	*s = (struct data_set){.per_sample = 0};
}

/* Moves indices that `to` does not know from `from`, as far as there is space, and removes `from`. */
static void set_move(struct data_sets *d, int from, int to)
{
	struct data_set *f = &d->sets[from], *s = &d->sets[to];

	d->n_known -= f->n;
	for (uint32_t i = 0; i < f->n_at; i++) {
		if (!f->at[i] || space_at(d, s, i) < 0 || s->at[i])
			continue;
		s->at[i] = f->at[i];
		s->n++;
		d->n_known++;
	}
	set_free(f);
}

void data_sets_free(struct data_sets *d)
{
	for (int i = 0; i < DATA_SETS; i++)
		set_free(&d->sets[i]);
	free(d->names);
	*d = (struct data_sets){.names = NULL};
}

/* ---- passes ---- */

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
	for (int i = 0; i < DATA_SETS; i++) {
		if (!s->sets[i].per_sample || i == p->set || p->is_not[i])
			continue;
		if (only >= 0)
			return -1;
		only = i;
	}
	return only >= 0 ? only : p->set;
}

struct likeness {
	uint32_t same, other;
};

static struct likeness compare(const struct data_sets *s, int set, const struct data_batch *b)
{
	struct likeness l = {0};
	const char *names = b->names;

	if (s->sets[set].per_sample != b->per_sample)
		return (struct likeness){.other = b->n};
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t bytes = names_bytes(names, b->per_sample);
		enum data_learnt r = compare_sample(s, set, b->indices[i], names, bytes);

		l.same += r == DATA_SAME;
		l.other += r == DATA_OTHER;
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

	for (int i = 0; i < DATA_SETS; i++) {
		struct likeness l;

		if (!s->sets[i].per_sample || i == p->set || p->is_not[i])
			continue;
		l = compare(s, i, b);
		p->is_not[i] = l.other > (l.same + l.other) / OTHER_SHARE;
		if (p->is_not[i] && i == guess)
			*n_wrong = s->sets[i].per_sample == b->per_sample ? l.other : 0;
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

	while (i < DATA_SETS && s->sets[i].per_sample)
		i++;
	if (i == DATA_SETS)
		return -1;
	s->sets[i].per_sample = per_sample;
	for (int k = 0; k < DATA_PASSES; k++)
		s->passes[k].is_not[i] = false;
	return i;
}

static void join(struct data_sets *s, int from, int to)
{
	set_move(s, from, to);
	for (int k = 0; k < DATA_PASSES; k++)
		if (s->passes[k].set == from)
			s->passes[k].set = to;
}

/* Returns the largest set that the pass can still be, although none of its samples is known in that set; or
 * -1. */
static int any_set(const struct data_sets *s, const struct data_pass *p, uint32_t per_sample)
{
	int found = -1;

	for (int i = 0; i < DATA_SETS; i++)
		if (!p->is_not[i] && s->sets[i].per_sample == per_sample &&
		    (found < 0 || s->sets[i].n > s->sets[found].n))
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
	for (int i = 0; found >= 0 && i < DATA_SETS; i++)
		if (i != found && i != p->set && s->sets[i].per_sample && !p->is_not[i] &&
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
