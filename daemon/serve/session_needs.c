/* SPDX-License-Identifier: Apache-2.0 */
/* Of a job on several nodes: which samples of its chunks this node's ranks take (peers/needs.h), for the
 * windows that a session lists ahead. */
#include "session.h"

#include <stdlib.h>

#include "client/diesel.h"
#include "lib/array.h"
#include "peers/needs.h"
#include "peers/sharers.h"

/* A window whose chunks are in `ahead`, from there on. */
struct session_window {
	struct needed_window *window; /* NULL: no memory */
	uint32_t from;
};

void session_needs_join(struct session *s)
{
	struct shuffle_spec spec;

	/* Sessions that begin inside an epoch need different parts of it. */
	if (!s->sharer || (s->request.flags & DIESEL_ASKED) || s->request.start)
		return;
	session_spec(s, s->epoch, &spec);
	s->needs = needs_join(&s->sharer->needs, &spec);
}

static void drop(struct session_window *windows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		needed_window_unref(windows[i].window);
}

void session_needs_leave(struct session *s)
{
	drop(s->windows, s->n_windows);
	free(s->windows);
	needs_leave(s->needs);
	s->windows = NULL;
	s->needs = NULL;
	s->n_windows = s->size_windows = s->n_old_windows = 0;
}

void session_needs_begin(struct session *s)
{
	s->n_old_windows = s->n_windows;
}

void session_needs_push(struct session *s, uint64_t epoch, uint64_t window)
{
	if (!s->needs || array_room(s->windows, s->n_windows, s->size_windows) < 0)
		return;
	s->windows[s->n_windows++] =
	    (struct session_window){.window = needs_window(s->needs, epoch, window), .from = s->n_ahead};
}

void session_needs_end(struct session *s)
{
	uint32_t n_old = s->n_old_windows;

	drop(s->windows, n_old);
	s->n_windows -= n_old;
	for (uint32_t i = 0; i < s->n_windows; i++)
		s->windows[i] = s->windows[i + n_old];
	s->n_old_windows = 0;
}

/* In the window that its place in `ahead` is in; of head's, in the first one that has it. */
static const uint64_t *bits_of(const struct session *s, uint64_t chunk, uint32_t ahead)
{
	for (uint32_t i = 0; i < s->n_windows; i++) {
		const struct session_window *w = &s->windows[i];
		bool is_last = i + 1 == s->n_windows || s->windows[i + 1].from > ahead;
		const uint64_t *bits = NULL;

		if (w->window && (ahead == SESSION_HEAD || is_last))
			bits = needed_bits(w->window, chunk);
		if (bits || (ahead != SESSION_HEAD && is_last))
			return bits;
	}
	return NULL;
}

struct cached_want session_want(const struct session *s, uint64_t chunk, uint32_t ahead)
{
	struct cached_want want = s->want;

	if (!s->needs)
		return want;
	want.subset = NULL; /* it is among what is needed; where that is not known, all is */
	want.bits = bits_of(s, chunk, ahead);
	return want;
}
