/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/mapped.h"
#include "lib/clock.h"

#define MAX_READERS  4
#define MAX_VIEWS    16  /* maximum per reader; its session may allow fewer */
#define RECONNECT_MS 500 /* maximum wait for the daemon before views_stop() is checked */
#define PATIENCE_NS  (60 * NS_PER_S)
#define AHEAD        8 /* number of chunks to read ahead for sequential readers; the daemon's limit may be lower */
#define N_RECENT     16

struct view {
	struct view_reader *reader;
	void *lease; /* NULL: unused */
	const uint8_t *base;
	uint32_t chunk;
	bool few;        /* the view may hold only some samples of its chunk, ... */
	uint64_t number; /* ... this sample */
	uint32_t users;
	uint64_t used_ns;
};

struct view_reader {
	struct diesel_session *session;
	struct view views[MAX_VIEWS];
	bool busy;      /* a thread uses it for a request */
	uint64_t chunk; /* chunk that the thread requests */
	uint64_t used_ns;
};

struct views {
	struct diesel_dataset *dataset;
	void (*say)(const char *line);
	pthread_mutex_t lock; /* protects all fields below, except the session of a busy reader */
	pthread_cond_t changed;
	struct view_reader *readers[MAX_READERS];
	uint32_t n_readers, max_readers;
	bool opening;
	struct view **by_chunk;    /* NULL: the chunk is not in view */
	uint64_t recent[N_RECENT]; /* chunk numbers + 1 of the latest requests */
	uint32_t n_recent;
	atomic_bool stopped;
	atomic_bool replaced; /* no daemon serves this version now */
};

int views_new(struct diesel_dataset *dataset, void (*say)(const char *line), struct views **ret)
{
	struct views *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->by_chunk = calloc(snapshot_info(mapped_snapshot(dataset))->n_chunks + 1, sizeof(struct view *));
	if (!v->by_chunk) {
		free(v);
		return -ENOMEM;
	}
	v->dataset = dataset;
	v->say = say;
	v->max_readers = MAX_READERS;
	pthread_mutex_init(&v->lock, NULL);
	pthread_cond_init(&v->changed, NULL);
	*ret = v;
	return 0;
}

static void drop_view(struct views *v, struct view *view)
{
	if (v->by_chunk[view->chunk] == view) /* keeps a newer view of the whole chunk */
		v->by_chunk[view->chunk] = NULL;
	diesel_batch_release(view->lease);
	view->lease = NULL;
}

static void reader_free(struct views *v, struct view_reader *r)
{
	for (uint32_t i = 0; i < MAX_VIEWS; i++) {
		if (r->views[i].lease)
			drop_view(v, &r->views[i]);
	}
	diesel_session_close(r->session);
	free(r);
}

void views_free(struct views *v)
{
	if (!v)
		return;
	for (uint32_t i = 0; i < v->n_readers; i++)
		reader_free(v, v->readers[i]);
	pthread_mutex_destroy(&v->lock);
	pthread_cond_destroy(&v->changed);
	free(v->by_chunk);
	free(v);
}

void views_stop(struct views *v)
{
	atomic_store(&v->stopped, true);
	pthread_mutex_lock(&v->lock);
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
}

/* Returns an unused view of the reader, else the least recently used one without users. NULL: all are in use.
 */
static struct view *find_space(struct view_reader *r)
{
	uint32_t n = diesel_session_max_held(r->session);
	struct view *best = NULL;

	for (uint32_t i = 0; i < MAX_VIEWS && i < n; i++) {
		struct view *view = &r->views[i];

		if (!view->lease)
			return view;
		if (view->users == 0 && (!best || view->used_ns < best->used_ns))
			best = view;
	}
	return best;
}

static bool is_better_space(const struct view *a, const struct view *b)
{
	return b->lease && (!a->lease || a->used_ns < b->used_ns);
}

/* Chooses the reader for a request and the view to fill: an unused view before one that must be released. */
static struct view_reader *find_reader(struct views *v, struct view **ret_space)
{
	struct view_reader *best = NULL;

	*ret_space = NULL;
	for (uint32_t i = 0; i < v->n_readers; i++) {
		struct view_reader *r = v->readers[i];
		struct view *space = r->busy ? NULL : find_space(r);

		if (space && (!best || is_better_space(space, *ret_space))) {
			best = r;
			*ret_space = space;
		}
	}
	return best;
}

static bool is_coming(const struct views *v, uint64_t chunk)
{
	for (uint32_t i = 0; i < v->n_readers; i++) {
		if (v->readers[i]->busy && v->readers[i]->chunk == chunk)
			return true;
	}
	return false;
}

/* Returns the number of chunks to read ahead. A thread that reads chunk after chunk needs the next chunks;
 * one that read this chunk before needs more of it. Otherwise, the rest of the chunk may be useless. */
static uint32_t note_recent(struct views *v, uint64_t chunk)
{
	uint32_t ahead = DIESEL_ASK_FEW;

	for (uint32_t i = 0; i < N_RECENT; i++) {
		if (chunk > 0 && v->recent[i] == chunk)
			ahead = AHEAD;
		else if (v->recent[i] == chunk + 1 && ahead != AHEAD)
			ahead = 0;
	}
	v->recent[v->n_recent++ % N_RECENT] = chunk + 1;
	return ahead;
}

/* Reports why nothing can be read; a permanent cause only once. Returns the error of the read. */
static int failed(struct views *v, int result, const char *line)
{
	if (result != -ESTALE) {
		v->say(line);
		return result == -EACCES ? result : -EIO;
	}
	if (!atomic_exchange(&v->replaced, true))
		v->say(
		    "another version replaced the dataset: to read the new one, unmount and mount it again");
	return -ESTALE;
}

/* Call it with the lock held; it releases the lock while it waits. */
static int open_reader(struct views *v)
{
	const struct diesel_session_options options = {.flags = DIESEL_ASKED,
						       .world = 1,
						       .batch = 1,
						       .slots = MAX_VIEWS + 1,
						       .reconnect_ms = RECONNECT_MS};
	struct view_reader *r = calloc(1, sizeof(*r));
	char error[512] = "no memory";
	int result;

	v->opening = true;
	pthread_mutex_unlock(&v->lock);
	result = r ? diesel_session_open(v->dataset, &options, &r->session, error, sizeof(error)) : -ENOMEM;
	pthread_mutex_lock(&v->lock);
	v->opening = false;
	pthread_cond_broadcast(&v->changed);
	if (result == 0) {
		for (uint32_t i = 0; i < MAX_VIEWS; i++)
			r->views[i].reader = r;
		v->readers[v->n_readers++] = r;
		return 0;
	}
	free(r);
	if (v->n_readers == 0)
		return failed(v, result, error);
	v->max_readers = v->n_readers; /* the cache has no space for another session, so readers take turns */
	return 0;
}

/* Waits for the requested batch; a batch abandoned earlier may arrive before it. Call it without the lock. */
static int take(struct views *v, struct diesel_session *s, uint64_t number, struct diesel_batch *ret)
{
	struct diesel_batch b;
	uint64_t give_up_ns = clock_monotonic_ns() + PATIENCE_NS;
	int r;

	for (;;) {
		const char *notice;

		r = diesel_session_next(s, &b);
		notice = diesel_session_notice(s);
		if (notice)
			v->say(notice);
		if (r == 0 && b.items[0].sample != number) {
			diesel_batch_release(b.lease);
			continue;
		}
		if (r != -EINTR && r != -ETIMEDOUT)
			break;
		if (atomic_load(&v->stopped))
			return -EINTR;
		if (r == -ETIMEDOUT && clock_monotonic_ns() >= give_up_ns)
			break;
	}
	if (r != 0)
		return failed(v, r, diesel_session_error(s));
	*ret = b;
	return 0;
}

/* Fills the view. Call it with the lock held; it releases the lock while it loads. */
static int load(struct views *v, struct view_reader *r, struct view *space, uint64_t number,
		const struct snapshot_sample *sample)
{
	uint32_t ahead = note_recent(v, sample->chunk);
	struct diesel_batch batch = {0};
	int result;

	if (space->lease)
		drop_view(v, space);
	r->busy = true;
	r->chunk = sample->chunk;
	pthread_mutex_unlock(&v->lock);
	/* The session is busy only with abandoned batches: it is useless now. */
	result = diesel_session_ask(r->session, &number, 1, ahead) < 0 ? -EIO
								       : take(v, r->session, number, &batch);
	pthread_mutex_lock(&v->lock);
	r->busy = false;
	r->used_ns = clock_monotonic_ns();
	if (result == 0) {
		space->lease = batch.lease;
		space->base = batch.items[0].data - sample->offset;
		space->chunk = sample->chunk;
		space->few = ahead == DIESEL_ASK_FEW;
		space->number = number;
		v->by_chunk[sample->chunk] = space;
	}
	pthread_cond_broadcast(&v->changed);
	return result;
}

/* Drops a reader whose session failed for good; the next read opens another one. */
static void drop_failed(struct views *v, struct view_reader *r)
{
	for (uint32_t i = 0; i < MAX_VIEWS; i++) {
		if (r->views[i].users > 0)
			return;
	}
	for (uint32_t i = 0; i < v->n_readers; i++) {
		if (v->readers[i] == r)
			v->readers[i] = v->readers[--v->n_readers];
	}
	reader_free(v, r);
}

/* Returns the view that has the sample, or NULL. */
static struct view *find_view(const struct views *v, uint64_t number, const struct snapshot_sample *sample)
{
	struct view *view = v->by_chunk[sample->chunk];

	return view && (!view->few || view->number == number) ? view : NULL;
}

/* Drops a view of one sample when the whole chunk is needed: the view would only occupy memory of the
 * daemon. */
static void drop_few(struct views *v, struct view *view)
{
	if (view && view->few && view->users == 0 && !view->reader->busy)
		drop_view(v, view);
}

static int get_locked(struct views *v, uint64_t number, const struct snapshot_sample *sample,
		      struct view **ret)
{
	for (;;) {
		struct view *view = find_view(v, number, sample), *space;
		struct view_reader *r;
		int result = 0;

		if (view) {
			*ret = view;
			return 0;
		}
		if (atomic_load(&v->stopped))
			return -EINTR;
		if (atomic_load(&v->replaced))
			return -ESTALE;
		drop_few(v, v->by_chunk[sample->chunk]);
		r = is_coming(v, sample->chunk) ? NULL : find_reader(v, &space);
		if (r) {
			result = load(v, r, space, number, sample);
			if (result < 0)
				drop_failed(v, r);
		} else if (!is_coming(v, sample->chunk) && !v->opening && v->n_readers < v->max_readers) {
			result = open_reader(v);
		} else {
			pthread_cond_wait(&v->changed, &v->lock);
		}
		if (result < 0)
			return result;
	}
}

/* Call it with the lock held. */
static void hold(struct view *view, const struct snapshot_sample *sample, struct view **ret_view,
		 const uint8_t **ret_data)
{
	view->users++;
	view->used_ns = clock_monotonic_ns();
	*ret_view = view;
	*ret_data = view->base + sample->offset;
}

int views_get(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	      const uint8_t **ret_data)
{
	struct view *view = NULL;
	int r;

	pthread_mutex_lock(&v->lock);
	r = get_locked(v, number, sample, &view);
	if (r == 0)
		hold(view, sample, ret_view, ret_data);
	pthread_mutex_unlock(&v->lock);
	return r;
}

int views_look(struct views *v, uint64_t number, const struct snapshot_sample *sample, struct view **ret_view,
	       const uint8_t **ret_data)
{
	struct view *view;

	pthread_mutex_lock(&v->lock);
	view = find_view(v, number, sample);
	if (view)
		hold(view, sample, ret_view, ret_data);
	pthread_mutex_unlock(&v->lock);
	return view ? 0 : -EAGAIN;
}

void views_release(struct views *v, struct view *view)
{
	pthread_mutex_lock(&v->lock);
	if (--view->users == 0) {
		if (v->by_chunk[view->chunk] != view)
			drop_few(v, view);
		pthread_cond_broadcast(&v->changed);
	}
	pthread_mutex_unlock(&v->lock);
}

void views_tidy(struct views *v, uint64_t idle_ns)
{
	uint64_t now_ns = clock_monotonic_ns();

	pthread_mutex_lock(&v->lock);
	for (uint32_t i = v->n_readers; i-- > 0;) {
		struct view_reader *r = v->readers[i];
		uint64_t last_ns = r->used_ns;
		bool used = r->busy;

		for (uint32_t k = 0; k < MAX_VIEWS; k++) {
			used |= r->views[k].users > 0;
			if (r->views[k].used_ns > last_ns)
				last_ns = r->views[k].used_ns;
		}
		if (used || last_ns + idle_ns > now_ns)
			continue;
		v->readers[i] = v->readers[--v->n_readers];
		reader_free(v, r);
	}
	v->max_readers = MAX_READERS;
	pthread_mutex_unlock(&v->lock);
}
