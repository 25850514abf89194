/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds samples by their paths, through the hash index.
 *
 * A search spends nearly all of its time waiting for memory, three times: for the bucket, the record and the
 * path. So a search is cut into steps, each of which prefetches the next step's data, and searches for many
 * paths take steps in turn.
 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "snapshot_map.h"

#define N_IN_TURN 32u /* searches at a time: more than the reads that a processor can have in flight */

enum { GOES_ON = 1 };

struct path_search {
	struct path_text path;
	uint64_t *result;
	uint64_t hash;
	uint64_t bucket, end;
	uint32_t candidates; /* bucket slots with the right tag that are still to be examined, one bit each */
	uint32_t sample;     /* the candidate being looked at */
	const char *text;    /* the candidate's path, which has the length of the wanted one */
	bool is_full;        /* the bucket */
	enum {
		CHECK_BUCKET,
		CHECK_RECORD,
		CHECK_PATH,
	} next;
};

/* Returns which of the first n tags equal this one, one bit each. */
static uint32_t equal_tags(const struct snapshot_bucket *b, uint32_t n, uint8_t tag)
{
	uint32_t equal = 0;

	for (uint32_t i = 0; i < SNAPSHOT_BUCKET_SLOTS; i++)
		equal |= (uint32_t)(b->tags[i] == tag) << i;
	return equal & ((1u << n) - 1);
}

/* Prefetches data that may span two cache lines. */
static void fetch(const void *data, size_t bytes)
{
	__builtin_prefetch(data);
	__builtin_prefetch((const char *)data + bytes - 1);
}

static void begin(const struct snapshot *s, struct path_text path, uint64_t *result, struct path_search *f)
{
	uint64_t hash = checksum_xxh3(path.text, path.length);
	uint64_t first = snapshot_bucket_of(hash, s->header.n_buckets);
	uint64_t end = first + SNAPSHOT_PROBE_MAX;

	*f = (struct path_search){
	    .path = path,
	    .result = result,
	    .hash = hash,
	    .bucket = first,
	    .end = end < s->n_all_buckets ? end : s->n_all_buckets,
	};
	__builtin_prefetch(&s->buckets[first]);
}

static int next_candidate(const struct snapshot *s, struct path_search *f)
{
	while (f->candidates) {
		f->sample = s->buckets[f->bucket].samples[__builtin_ctz(f->candidates)];
		f->candidates &= f->candidates - 1;
		if (f->sample >= s->info.n_samples)
			continue;
		fetch(&s->records[f->sample], sizeof(*s->records));
		f->next = CHECK_RECORD;
		return GOES_ON;
	}
	if (!f->is_full || ++f->bucket >= f->end)
		return -ENOENT;
	__builtin_prefetch(&s->buckets[f->bucket]);
	f->next = CHECK_BUCKET;
	return GOES_ON;
}

static int check_bucket(const struct snapshot *s, struct path_search *f)
{
	const struct snapshot_bucket *b = &s->buckets[f->bucket];
	uint32_t n = b->n_taken < SNAPSHOT_BUCKET_SLOTS ? b->n_taken : SNAPSHOT_BUCKET_SLOTS;

	f->candidates = equal_tags(b, n, (uint8_t)f->hash);
	f->is_full = n == SNAPSHOT_BUCKET_SLOTS;
	return next_candidate(s, f);
}

static int check_record(const struct snapshot *s, struct path_search *f)
{
	struct path_text found = snapshot_path(s, f->sample);

	if (!found.text || found.length != f->path.length || found.length == 0)
		return next_candidate(s, f);
	f->text = found.text;
	fetch(f->text, found.length);
	f->next = CHECK_PATH;
	return GOES_ON;
}

/* Takes one step of the search, which has ended unless this returns GOES_ON. */
static int step(const struct snapshot *s, struct path_search *f)
{
	switch (f->next) {
	case CHECK_BUCKET: return check_bucket(s, f);
	case CHECK_RECORD: return check_record(s, f);
	case CHECK_PATH: break;
	}
	if (memcmp(f->text, f->path.text, f->path.length) != 0)
		return next_candidate(s, f);
	*f->result = f->sample;
	return 0;
}

int snapshot_find(const struct snapshot *s, const char *path, size_t path_length, uint64_t *ret_sample)
{
	struct path_search f;
	int r;

	begin(s, (struct path_text){path, path_length}, ret_sample, &f);
	do
		r = step(s, &f);
	while (r == GOES_ON);
	return r;
}

uint64_t snapshot_find_many(const struct snapshot *s, const struct path_text *paths, uint64_t n,
			    uint64_t *samples)
{
	struct path_search searches[N_IN_TURN];
	uint64_t n_begun = 0, n_found = 0;
	unsigned n_going = 0;

	for (uint64_t i = 0; i < n; i++)
		samples[i] = SNAPSHOT_NOT_FOUND;
	for (; n_going < N_IN_TURN && n_begun < n; n_begun++)
		begin(s, paths[n_begun], &samples[n_begun], &searches[n_going++]);
	while (n_going > 0) {
		for (unsigned i = 0; i < n_going;) {
			int r = step(s, &searches[i]);

			if (r == GOES_ON) {
				i++;
				continue;
			}
			n_found += r == 0;
			if (n_begun < n) {
				begin(s, paths[n_begun], &samples[n_begun], &searches[i++]);
				n_begun++;
			} else {
				searches[i] = searches[--n_going];
			}
		}
	}
	return n_found;
}
