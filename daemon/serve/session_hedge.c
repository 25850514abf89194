/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that wait for a node that is slow. */
#include "session.h"

#include "lib/clock.h"

/* Nobody says when a client has taken its last batch. */
#define LOOK_NS (20 * NS_PER_MS)

bool session_is_drained(const struct session *s)
{
	return s->order_first == s->order_last && atomic_load(&s->control->consumed) == s->published;
}

uint64_t session_hedge(struct session *s, uint64_t now_ns)
{
	uint64_t again_ns = UINT64_MAX;

	if (!s->sharer || !s->has_head || s->head.status != 0 || s->closing || s->stopped)
		return again_ns;
	for (uint32_t i = 0; i < s->head.n_chunks; i++) {
		uint32_t chunk = s->head.chunks[i];
		uint64_t ns;

		if (!s->dataset->chunks[chunk].is_asked)
			continue;
		ns = cache_hedge_ns(s->cache, s->dataset, chunk, s->job);
		if (ns <= now_ns && session_is_drained(s))
			cache_hedge(s->cache, s->dataset, chunk, s->job);
		else if (ns <= now_ns)
			ns = now_ns + LOOK_NS;
		if (ns > now_ns && ns < again_ns)
			again_ns = ns;
	}
	return again_ns;
}
