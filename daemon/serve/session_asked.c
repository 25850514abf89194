/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of what the client asks for, in its order. */
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int session_asked_init(struct session *s)
{
	s->asked = calloc(s->n_slots, sizeof(*s->asked));
	s->samples = calloc(s->batch, sizeof(*s->samples));
	s->asked_end = s->request.first_batch;
	return s->asked && s->samples ? 0 : -ENOMEM;
}

static struct asked_batch *asked_at(const struct session *s, uint64_t index)
{
	return &s->asked[index % s->n_slots];
}

static bool push_chunk_of(struct session *s, uint64_t sample, uint32_t *ret_chunk)
{
	struct snapshot_sample found;

	if (snapshot_sample_get(s->dataset->snapshot, sample, &found) < 0)
		return true; /* its batch becomes an error */
	*ret_chunk = found.chunk;
	return session_ahead_push(s, found.chunk);
}

/* Lists the chunks of what is asked for behind head, and then those behind the last one that may be read too:
 * as many as the knob of reading ahead says, which also bounds what each message costs. */
static void update_ahead(struct session *s, uint32_t last_chunk, uint32_t ahead)
{
	s->n_ahead = 0;
	for (uint64_t i = s->index; i < s->asked_end; i++) {
		const struct asked_batch *a = asked_at(s, i);

		/* What it needs of its chunks is known when it is head. */
		if (a->ahead == WIRE_ASK_FEW)
			return;
		for (uint32_t k = 0; k < a->n_samples; k++) {
			if (s->n_ahead >= s->prefetch_chunks)
				return;
			if (!push_chunk_of(s, a->samples[k], &last_chunk))
				return;
		}
		ahead = a->ahead;
	}
	if (s->is_warm) {
		session_warm_ahead(s, last_chunk);
		return;
	}
	if (ahead > s->prefetch_chunks - s->n_ahead)
		ahead = s->prefetch_chunks - s->n_ahead;
	for (uint64_t chunk = last_chunk + UINT64_C(1);
	     chunk <= (uint64_t)last_chunk + ahead && chunk < s->dataset->info.n_chunks; chunk++) {
		if (!session_ahead_push(s, chunk))
			return;
	}
}

static uint32_t last_chunk_of(const struct batch *b)
{
	return b->n_items ? b->items[b->n_items - 1].chunk : 0;
}

int session_ask(struct session *s, const struct wire_ask *ask)
{
	struct asked_batch *a;

	if (!s->asked || ask->index != s->asked_end || s->asked_end - s->index >= s->n_slots ||
	    ask->n_samples > s->batch)
		return -EPROTO;
	a = asked_at(s, s->asked_end++);
	a->n_samples = ask->n_samples;
	a->ahead = ask->ahead;
	memcpy(a->samples, ask->samples, sizeof(a->samples));
	if (s->has_head)
		update_ahead(s, last_chunk_of(&s->head), 0);
	return 0;
}

bool session_prepare_asked(struct session *s)
{
	const struct asked_batch *a;

	if (s->index == s->asked_end)
		return false;
	a = asked_at(s, s->index);
	memcpy(s->samples, a->samples, a->n_samples * sizeof(*s->samples));
	s->want = (struct cached_want){0};
	if (a->ahead == WIRE_ASK_FEW)
		s->want = (struct cached_want){.samples = s->samples, .n = a->n_samples};
	session_set_head(s, s->samples, a->n_samples);
	s->index++;
	s->job->counters.chunk_visits += s->head.n_chunks;
	update_ahead(s, last_chunk_of(&s->head), a->ahead == WIRE_ASK_FEW ? 0 : a->ahead);
	return true;
}
