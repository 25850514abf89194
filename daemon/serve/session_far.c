/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a session reads ahead where chunks go for others. What an epoch finds in memory is what it needs
 * first (policy.h): so storage would idle while that is used, and be late afterwards. It has to begin before
 * its turn comes, but no sooner than it takes: what is read too early lies where something of the next epoch
 * would have. Where chunks come from staging too, it reads no further than the knob says: many that are asked
 * for at one time would be late for staging's patience, and be read from storage instead. The same holds for
 * other nodes of the job.
 */
#include "session.h"

#define FORGET 0.75 /* of what was measured before, at each window */

/* The client says how long it waited; if it lies, its own session reads too early or too late. */
void session_note_pace(struct session *s, uint64_t visit, uint64_t now_ns)
{
	struct session_pace *p = &s->pace;
	struct job_counters waits = {0};
	uint64_t n = visit - p->visit, ns = now_ns - p->at_ns, waited_ns;

	session_add_waits(s, now_ns, &waits);
	waited_ns = waits.wait_fetch_ns - p->wait_ns;
	if (p->at_ns && visit > p->visit && n <= s->n_chunks && waits.wait_fetch_ns >= p->wait_ns) {
		p->visits = p->visits * FORGET + (double)n;
		p->used_ns = p->used_ns * FORGET + (double)(ns > waited_ns ? ns - waited_ns : 0);
	}
	p->at_ns = now_ns;
	p->wait_ns = waits.wait_fetch_ns;
	p->visit = visit;
}

/* Not in memory: to be read, or on its way. */
static bool is_awaited(const struct cached_dataset *d, uint32_t chunk)
{
	return d->chunks[chunk].state != CHUNK_READY && d->chunks[chunk].state != CHUNK_BAD;
}

static uint64_t n_held(const struct session *s)
{
	return s->dataset->held_bytes / s->dataset->segment_bytes;
}

uint32_t session_far_most(const struct session *s)
{
	uint32_t reach = policy_far_reach(n_held(s));

	return reach > s->prefetch_chunks ? reach : s->prefetch_chunks;
}

/* As far as the knob says. */
static uint32_t near(const struct session *s, uint32_t own)
{
	uint64_t end = (uint64_t)own + s->prefetch_chunks, reach = policy_reach(n_held(s));

	if (end > reach)
		end = reach > own ? reach : own;
	return end < s->n_ahead ? (uint32_t)end : s->n_ahead;
}

uint32_t session_far_ahead(const struct session *s, uint32_t own)
{
	const struct cached_dataset *d = s->dataset;
	const struct session_pace *p = &s->pace;
	uint32_t window = s->request.window_chunks, end = near(s, own), n_missing = 0, n_wanted, i = own;
	double use_ns = p->visits > 0 ? p->used_ns / p->visits : 0;
	double read_ns = d->pace.reading.ns_per_byte * (double)d->segment_bytes;
	bool late = false;

	if (d->pace.reading.n == 0 || p->visits == 0 || (d->pace.from_staging && !d->pace.staging.is_off) ||
	    s->sharer)
		return end;
	for (uint32_t k = own; k < s->n_ahead && !late; k++) {
		n_missing += is_awaited(d, s->ahead[k]);
		late = policy_is_late(read_ns, n_missing, use_ns, (k - own) / window * window);
	}
	if (!late)
		return end;
	n_wanted = policy_reads_meanwhile(read_ns, use_ns, own);
	for (n_missing = 0; i < s->n_ahead && n_missing < n_wanted; i++)
		n_missing += is_awaited(d, s->ahead[i]);
	return i > end ? i : end;
}
