/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions whose client wants nothing of its chunks but that they are in memory (dieselctl warm). They take
 * what nobody uses: memory that is free, or has chunks of datasets that nobody has open and that their own
 * user had last. Of a dataset that several nodes share, each has the chunks that it owns when the session
 * begins: who is done before the others, and leaves, leaves no work to them.
 */
#include "session.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/clock.h"
#include "daemon/cache/peers/sharers.h"
#include "daemon/node/turns.h"

/* To look for room takes a pass through all that is in memory. */
#define FULL_NS NS_PER_S
/* Chunks that are looked at for the next ones to be read, of which others have most. */
#define LOOK_AHEAD 1024
/* Who owns a chunk takes a look at each node. */
#define OWNERS_AT_ONCE 65536

/* Finds out for the next chunks who has them: with many of both, not for all at once. */
static void find_elsewhere(struct session *s)
{
	uint64_t n = s->dataset->info.n_chunks,
		 n_members = s->sharer->group ? cluster_n_members(s->sharer->group) : 1;
	uint64_t end = s->n_known + OWNERS_AT_ONCE / n_members + 1;

	if (!s->elsewhere)
		s->elsewhere = calloc(n / 64 + 1, sizeof(*s->elsewhere));
	if (!s->elsewhere)
		return; /* later */
	for (; s->n_known < n && s->n_known < end; s->n_known++)
		if (sharer_has_elsewhere(s->sharer, s->n_known))
			s->elsewhere[s->n_known / 64] |= UINT64_C(1) << (s->n_known % 64);
}

bool session_warm_knows(const struct session *s)
{
	return !s->sharer || s->n_known == s->dataset->info.n_chunks;
}

bool session_warm_is_elsewhere(const struct session *s, uint64_t chunk)
{
	return s->elsewhere && s->elsewhere[chunk / 64] >> (chunk % 64) & 1;
}

static bool is_lacking(const struct session *s, uint32_t chunk)
{
	const struct cached_want all = {0};

	return cached_lacks(s->dataset, chunk, &all) && s->dataset->chunks[chunk].state != CHUNK_BAD;
}

static bool is_head_lacking(const struct session *s)
{
	for (uint32_t i = 0; i < s->head.n_chunks; i++)
		if (is_lacking(s, s->head.chunks[i]))
			return true;
	return false;
}

static bool is_head_elsewhere(const struct session *s)
{
	for (uint32_t i = 0; i < s->head.n_chunks; i++)
		if (session_warm_is_elsewhere(s, s->head.chunks[i]) && is_lacking(s, s->head.chunks[i]))
			return true;
	return false;
}

bool session_warm_look(struct session *s)
{
	uint64_t again_ns = UINT64_MAX, now_ns = clock_monotonic_ns();

	if (s->head.status < 0 || !is_head_lacking(s))
		return true;
	if (!session_warm_knows(s) && !sharer_waits(s->sharer, now_ns, &again_ns))
		find_elsewhere(s);
	if (!session_warm_knows(s))
		return false;
	if (is_head_elsewhere(s))
		batch_fail(&s->head, -EREMOTE, "another node of the job has this chunk");
	else if (s->full_ns && now_ns < s->full_ns + FULL_NS)
		(void)session_warm_full(s, now_ns);
	return true;
}

bool session_warm_full(struct session *s, uint64_t now_ns)
{
	if (!s->full_ns || now_ns >= s->full_ns + FULL_NS)
		s->full_ns = now_ns;
	s->n_ahead = 0;
	if (!s->has_head || s->head.status < 0 || !is_head_lacking(s))
		return false;
	batch_fail(&s->head, -ENOSPC, "the cache has no room for this chunk beside what is in use");
	return true;
}

void session_warm_ahead(struct session *s, uint64_t chunk)
{
	uint64_t n = s->dataset->info.n_chunks, end = chunk + LOOK_AHEAD < n ? chunk + LOOK_AHEAD : n;

	if (s->full_ns)
		return;
	while (++chunk < end && s->n_ahead < s->prefetch_chunks)
		if (!session_warm_is_elsewhere(s, chunk) && !session_ahead_push(s, chunk))
			return;
}

/* A process may train, too: its job is a job then. */
void session_warm_weigh(const struct session *s)
{
	struct job *job = s->job;

	if (s->is_warm && job->n_sessions == 1 && job->read_weight == TURN_WEIGHT)
		job->read_weight = SESSION_WARM_WEIGHT;
	else if (!s->is_warm && job->read_weight == SESSION_WARM_WEIGHT)
		job->read_weight = TURN_WEIGHT;
}
