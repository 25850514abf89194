/* SPDX-License-Identifier: Apache-2.0 */
/* Applies knobs, per job and for all, while sessions run. */
#include "serving_knobs.h"

#include <errno.h>
#include <string.h>

#include "daemon/cache/decoded.h"
#include "lib/minmax.h"
#include "lib/units.h"
#include "serving.h"

_Static_assert(TUNER_FREE_NUMBER == RING_NO_WISH, "TUNER_FREE_NUMBER is passed on unchanged");

/* Returns true if no earlier session of the job uses the same dataset, so that each dataset counts once.
 * Sessions are few. */
static bool is_first_of_dataset(const struct serving *s, const struct session *session)
{
	for (const struct session *q = s->sessions; q != session; q = q->next) {
		if (q->job == session->job && q->order.dataset == session->order.dataset)
			return false;
	}
	return true;
}

/* Returns true if no earlier session of the job uses the same decoded copies. */
static bool is_first_of_decoded(const struct serving *s, const struct session *session)
{
	for (const struct session *q = s->sessions; q != session; q = q->next) {
		if (q->job == session->job && q->decoded_cache == session->decoded_cache)
			return false;
	}
	return session->decoded_cache;
}

static uint64_t need_of_job(const struct serving *s, const struct job *job, const struct cached_dataset *d)
{
	uint64_t bytes = 0;

	for (const struct session *q = s->sessions; q; q = q->next) {
		if (q->job == job && q->order.dataset == d)
			bytes += q->need_bytes;
	}
	return bytes < d->all_bytes ? bytes : d->all_bytes;
}

void serving_job_memory(const struct serving *s, const struct job *job, struct serving_job_memory *ret)
{
	*ret = (struct serving_job_memory){0};
	for (const struct session *q = s->sessions; q; q = q->next) {
		const struct cached_dataset *d = q->order.dataset;

		if (q->job != job)
			continue;
		ret->other += q->cost_bytes;
		if (is_first_of_decoded(s, q)) {
			ret->decoded_cache += q->decoded_cache->bytes;
			ret->decoded_limit += q->decoded_cache->limit_bytes;
			ret->n_decoded_copies += q->decoded_cache->n_entries;
			ret->decoded += q->order.n_samples;
		}
		if (!is_first_of_dataset(s, q))
			continue;
		ret->other += d->copy.bytes;
		ret->need += need_of_job(s, job, d);
		ret->cached += d->held_bytes;
		ret->borrowed += d->held_bytes > d->claim_bytes ? d->held_bytes - d->claim_bytes : 0;
		ret->dataset += d->all_bytes;
		ret->chunks += d->info.n_chunks;
	}
	ret->need += ret->other;
}

uint64_t serving_decoded_space(const struct serving *s)
{
	const struct cache *c = &s->cache;
	uint64_t space = cache_segment_limit(c, c->limit_bytes), claimed = 0;

	for (const struct cached_dataset *d = c->datasets; d; d = d->next) {
		uint64_t need = cached_need_bytes(d),
			 asked = d->asked_bytes < d->all_bytes ? d->asked_bytes : d->all_bytes;

		if (d->n_sessions > 0)
			claimed += asked > need ? asked : need;
	}
	space = space > claimed ? space - claimed : 0;
	return min_u64(space, cache_borrowable_bytes(c));
}

void serving_job_knobs(const struct serving *s, const struct job *job, struct tuner_knobs *ret)
{
	uint64_t *cache = &ret->value[TUNER_CACHE_BYTES], *prefetch = &ret->value[TUNER_PREFETCH_CHUNKS];
	uint64_t *workers = &ret->value[TUNER_DAEMON_WORKERS];
	struct serving_job_memory memory;

	*ret = job->knobs;
	serving_job_memory(s, job, &memory);
	if (*cache > s->cache.budget_bytes)
		*cache = s->cache.budget_bytes;
	if (*cache < memory.need)
		*cache = memory.need;
	if (*prefetch == TUNER_FREE_NUMBER)
		*prefetch = s->options.knobs.prefetch_chunks;
	if (ret->value[TUNER_DECODED_BYTES] == TUNER_FREE_BYTES)
		ret->value[TUNER_DECODED_BYTES] = 0;
	if (*workers > pool_workers(s->cache.pool))
		*workers = pool_workers(s->cache.pool);
	if (*workers < 1)
		*workers = 1;
}

/* Returns the share of the job's cache knob for one of its datasets, in bytes; UINT64_MAX: no limit. */
static uint64_t asked_for(const struct job *job, const struct serving_job_memory *memory,
			  const struct cached_dataset *d)
{
	uint64_t chunks = job->knobs.value[TUNER_CACHE_BYTES];

	if (chunks == TUNER_FREE_BYTES)
		return UINT64_MAX;
	chunks = chunks > memory->other ? chunks - memory->other : 0;
	return policy_dataset_part(chunks, d->all_bytes, memory->dataset);
}

/* Adds a job's part in the needs of a dataset; called for the job's first session of that dataset. */
static void add_needs(struct serving *s, struct session *q, const struct serving_job_memory *memory)
{
	struct cached_dataset *d = q->order.dataset;
	uint64_t asked = asked_for(q->job, memory, d);

	if (asked > d->asked_bytes)
		d->asked_bytes = asked;
	d->prefetch_chunks += q->order.prefetch_chunks;
}

/* Adds a job's claim for decoded copies; called for the job's first session with these decoded copies. While
 * the knob is free, the claim is the bytes in memory. */
static void ask_decoded(struct session *q, const struct serving_job_memory *memory)
{
	uint64_t bytes = q->job->knobs.value[TUNER_DECODED_BYTES];

	bytes = bytes == TUNER_FREE_BYTES
		    ? q->decoded_cache->bytes
		    : policy_dataset_part(bytes, q->order.dataset->all_bytes, memory->dataset);
	if (bytes > q->decoded_cache->asked_bytes)
		q->decoded_cache->asked_bytes = bytes;
}

static void mark_all(struct serving *s)
{
	uint64_t chunk;
	uint32_t distance;

	s->cache.round++;
	for (struct session *q = s->sessions; q; q = q->next)
		(void)session_mark(q, &chunk, &distance);
}

/* Recomputes which payer each dataset, batch and decoded copy counts for. */
static void find_payers(struct serving *s)
{
	memset(s->cache.paid_other_bytes, 0, sizeof(s->cache.paid_other_bytes));
	memset(s->cache.paid_kept_bytes, 0, sizeof(s->cache.paid_kept_bytes));
	for (struct cached_dataset *d = s->cache.datasets; d; d = d->next) {
		d->payers.serving = 0;
		memset(d->payers.need_bytes, 0, sizeof(d->payers.need_bytes));
	}
	for (struct session *q = s->sessions; q; q = q->next) {
		q->order.dataset->payers.serving |= 1u << q->payer;
		q->order.dataset->payers.need_bytes[q->payer] += q->need_bytes;
		s->cache.paid_other_bytes[q->payer] += q->cost_bytes;
		s->cache.paid_kept_bytes[q->payer] += group_kept_bytes(q);
		if (q->decoded_cache)
			q->decoded_cache->payer = q->payer;
	}
}

void serving_refresh(struct serving *s)
{
	find_payers(s);
	for (struct cached_dataset *d = s->cache.datasets; d; d = d->next) {
		if (d->n_sessions > 0)
			d->asked_bytes = d->prefetch_chunks = 0;
	}
	for (struct session *q = s->sessions; q; q = q->next) {
		uint32_t own = (uint32_t)q->job->knobs.value[TUNER_PREFETCH_CHUNKS];
		uint32_t wanted = (uint32_t)q->job->knobs.value[TUNER_CLIENT_WORKERS];

		q->order.prefetch_chunks = own == TUNER_FREE_NUMBER ? s->options.knobs.prefetch_chunks : own;
		if (atomic_load(&q->slots.control->wanted_workers) != wanted)
			atomic_store(&q->slots.control->wanted_workers, wanted);
		session_look_ahead(q);
		if (q->decoded_cache)
			q->decoded_cache->asked_bytes = 0;
	}
	for (struct session *q = s->sessions; q; q = q->next) {
		bool of_dataset = is_first_of_dataset(s, q), of_decoded = is_first_of_decoded(s, q);
		struct serving_job_memory memory;

		if (!of_dataset && !of_decoded)
			continue;
		serving_job_memory(s, q->job, &memory);
		if (of_dataset)
			add_needs(s, q, &memory);
		if (of_decoded)
			ask_decoded(q, &memory);
	}
	mark_all(s);
	cache_fit(&s->cache);
}

static void tell_clamped(struct error *note, const char *who, uint64_t asked, uint64_t need)
{
	char wanted[16], needed[16];

	error_set(note, 0,
		  "cache of %s: %s is less than the %s that its open sessions need. The cache stays at that "
		  "size until the sessions close",
		  who, units_format_bytes(wanted, sizeof(wanted), asked),
		  units_format_bytes(needed, sizeof(needed), need));
}

void serving_set_options(struct serving *s, const struct serving_options *again)
{
	struct serving_options options = *again;

	options.knobs = s->options.knobs;
	options.knobs.prefetch_chunks = again->knobs.prefetch_chunks;
	options.window_cache_bytes = s->options.window_cache_bytes;
	s->options = options;
}

int serving_apply_knobs(struct serving *s, const struct serving_knobs *knobs, struct error *note)
{
	s->options.knobs = *knobs;
	s->cache.limit_bytes = knobs->cache_bytes;
	pool_set_workers(s->cache.pool, knobs->workers);
	serving_refresh(s);
	serving_touch(s);
	if (s->cache.budget_bytes <= knobs->cache_bytes)
		return 0;
	tell_clamped(note, "the daemon", knobs->cache_bytes, s->cache.budget_bytes);
	return 1;
}

int serving_set_job(struct serving *s, uint64_t id, const struct tuner_knobs *knobs, struct error *note)
{
	struct job *job = jobs_find(&s->jobs, id);
	struct serving_job_memory memory;
	char who[32];

	if (!job)
		return error_set(note, -ENOENT, "no job has the number %llu", (unsigned long long)id);
	job->knobs = *knobs;
	pool_lane_limit(s->cache.pool, &job->lane, (uint32_t)knobs->value[TUNER_DAEMON_WORKERS]);
	serving_refresh(s);
	serving_touch(s);
	serving_job_memory(s, job, &memory);
	if (knobs->value[TUNER_CACHE_BYTES] >= memory.need)
		return 0;
	snprintf(who, sizeof(who), "job %llu", (unsigned long long)id);
	tell_clamped(note, who, knobs->value[TUNER_CACHE_BYTES], memory.need);
	return 1;
}
