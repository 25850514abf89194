/* SPDX-License-Identifier: Apache-2.0 */
#include "ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/cleanup.h"
#include "lister.h"

#define WINDOW_FIRST 8 /* files */
#define WINDOW_MOST  128
#define WINDOW_BYTES (2u << 20)
#define GAP          4 /* number of files that a program reads itself while the prefetch starts */
#define N_STREAMS    4
#define N_RECENT     32
#define N_WAITING    8
#define LIST_MIN     64 /* names */
#define END_S        1

/* A program that reads files in tree order; places are positions in that order. The kernel does not ask for
 * prefetched files. So the prefetch leaves out one file in the middle: a request for it shows that the
 * program needs more. */
struct stream {
	uint64_t from, to; /* places; to == 0: unused */
	uint64_t marker;
	uint64_t used;
	uint32_t window;
};

struct range {
	uint64_t from, to, but;
};

struct mount_ahead {
	const struct tree *tree;
	const struct snapshot *snapshot; /* the tree's */
	struct views *views;
	int lister_fd;
	ahead_store_fn store;
	void *user;
	pthread_t thread;
	pthread_mutex_t lock; /* protects all fields below */
	pthread_cond_t more;
	struct stream streams[N_STREAMS];
	uint64_t recent[N_RECENT]; /* sample numbers + 1 of the latest requests */
	uint64_t n_recent, n_used;
	struct range waiting[N_WAITING]; /* a ring */
	uint32_t first, n;
	atomic_bool ends;
	bool ended; /* the thread has ended */
};

/* ---- giving -------------------------------------------------------------------------------------------- */

/* Puts one file into the page cache. Returns a negative errno if prefetching the rest of the range is
 * pointless. */
static int give_one(struct mount_ahead *a, uint64_t place)
{
	struct snapshot_sample sample;
	const uint8_t *data;
	struct view *view;
	uint64_t number;
	int r = snapshot_by_path(a->snapshot, place, &number);

	if (r == 0)
		r = snapshot_sample_get(a->snapshot, number, &sample);
	if (r < 0)
		return r;
	if (sample.bytes == 0 || sample.bytes > AHEAD_FILE_BYTES ||
	    views_look(a->views, number, &sample, &view, &data) < 0)
		return 0;
	r = a->store(a->user, tree_sample_inode(number), data, sample.bytes);
	views_release(a->views, view);
	return r;
}

/* Makes the lister list the folder at this place: the program has not listed it, so the kernel does not know
 * its names. */
static int list(struct mount_ahead *a, uint64_t place, uint64_t n)
{
	struct lister_order order = {.n_entries = n > LIST_MIN ? (uint32_t)n : LIST_MIN};
	int r = a->lister_fd < 0 ? -EBADF : tree_locate(a->tree, place, order.folder, &order.offset);

	if (r == 0)
		r = lister_list(a->lister_fd, &order);
	if (r < 0)
		closep(&a->lister_fd);
	if (r < 0)
		a->lister_fd = -EBADF;
	return r;
}

static void give_range(struct mount_ahead *a, const struct range *range)
{
	for (uint64_t place = range->from; place < range->to && !atomic_load(&a->ends); place++) {
		int r = place == range->but ? 0 : give_one(a, place);

		if (r == -ENOENT && list(a, place, 2 * (range->to - range->from)) == 0)
			r = give_one(a, place);
		if (r < 0)
			return;
	}
}

static void *give(void *argument)
{
	struct mount_ahead *a = argument;

	pthread_mutex_lock(&a->lock);
	while (!atomic_load(&a->ends)) {
		struct range range;

		if (a->n == 0) {
			pthread_cond_wait(&a->more, &a->lock);
			continue;
		}
		range = a->waiting[a->first];
		a->first = (a->first + 1) % N_WAITING;
		a->n--;
		pthread_mutex_unlock(&a->lock);
		give_range(a, &range);
		pthread_mutex_lock(&a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

/* ---- readers of the files ------------------------------------------------------------------------------ */

static bool is_at(const struct mount_ahead *a, uint64_t place, uint64_t number)
{
	uint64_t found;

	return snapshot_by_path(a->snapshot, place, &found) == 0 && found == number;
}

static struct stream *find_stream(struct mount_ahead *a, uint64_t number, uint64_t *ret_place)
{
	for (size_t i = 0; i < N_STREAMS; i++)
		for (uint64_t place = a->streams[i].from; place < a->streams[i].to; place++)
			if (is_at(a, place, number)) {
				*ret_place = place;
				return &a->streams[i];
			}
	return NULL;
}

/* Returns the stream that was used longest ago. */
static struct stream *find_unused(struct mount_ahead *a)
{
	struct stream *oldest = &a->streams[0];

	for (size_t i = 1; i < N_STREAMS; i++)
		if (a->streams[i].used < oldest->used)
			oldest = &a->streams[i];
	return oldest;
}

static bool was_read(const struct mount_ahead *a, uint64_t number)
{
	for (size_t i = 0; i < N_RECENT; i++)
		if (a->recent[i] == number + 1)
			return true;
	return false;
}

static bool follows_another(const struct mount_ahead *a, uint64_t place)
{
	uint64_t before;

	return place > 0 && snapshot_by_path(a->snapshot, place - 1, &before) == 0 && was_read(a, before);
}

/* Queues the next files for prefetch: the program is at this place. */
static void extend(struct mount_ahead *a, struct stream *s, uint64_t place, uint32_t bytes)
{
	uint64_t n_samples = snapshot_info(a->snapshot)->n_samples;
	uint32_t most = WINDOW_BYTES / (bytes ? bytes : 1);
	struct range range = {.from = s->to};

	if (a->n == N_WAITING)
		return;
	s->from = place;
	s->marker = place + s->window;
	s->to = place + 2 * s->window;
	if (s->to > n_samples)
		s->to = n_samples;
	s->window = s->window * 2 < WINDOW_MOST ? s->window * 2 : WINDOW_MOST;
	if (s->window > most)
		s->window = most > 1 ? most : 1;
	range.to = s->to;
	range.but = s->marker;
	if (range.from >= range.to)
		return;
	a->waiting[(a->first + a->n++) % N_WAITING] = range;
	pthread_cond_signal(&a->more);
}

void ahead_read(struct mount_ahead *a, uint64_t number, const struct snapshot_sample *sample)
{
	uint64_t place;
	struct stream *s;

	pthread_mutex_lock(&a->lock);
	s = find_stream(a, number, &place);
	if (s && place >= s->marker) {
		extend(a, s, place, sample->bytes);
	} else if (!s && snapshot_place(a->snapshot, number, &place) == 0 && follows_another(a, place)) {
		s = find_unused(a);
		*s = (struct stream){.window = WINDOW_FIRST, .to = place + 1 + GAP};
		extend(a, s, place, sample->bytes);
	}
	if (s)
		s->used = ++a->n_used;
	a->recent[a->n_recent++ % N_RECENT] = number + 1;
	pthread_mutex_unlock(&a->lock);
}

int ahead_new(const struct tree *tree, struct views *views, int lister_fd, ahead_store_fn store, void *user,
	      struct mount_ahead **ret)
{
	struct mount_ahead *a = calloc(1, sizeof(*a));
	int r;

	if (!a)
		return -ENOMEM;
	*a = (struct mount_ahead){.tree = tree,
				  .snapshot = tree->snapshot,
				  .views = views,
				  .lister_fd = lister_fd,
				  .store = store,
				  .user = user};
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->more, NULL);
	r = -pthread_create(&a->thread, NULL, give, a);
	if (r < 0) {
		free(a);
		return r;
	}
	*ret = a;
	return 0;
}

bool ahead_end(struct mount_ahead *a)
{
	struct timespec until;

	if (!a)
		return true;
	pthread_mutex_lock(&a->lock);
	atomic_store(&a->ends, true);
	pthread_cond_signal(&a->more);
	pthread_mutex_unlock(&a->lock);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_S;
	a->ended = pthread_timedjoin_np(a->thread, NULL, &until) == 0;
	return a->ended;
}

void ahead_free(struct mount_ahead *a)
{
	if (!a)
		return;
	if (!a->ended)
		pthread_join(a->thread, NULL);
	closep(&a->lister_fd);
	pthread_cond_destroy(&a->more);
	pthread_mutex_destroy(&a->lock);
	free(a);
}
