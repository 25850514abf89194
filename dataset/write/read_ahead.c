/* SPDX-License-Identifier: Apache-2.0 */
#include "read_ahead.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/sample.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/thread.h"

#define N_SLOTS     UINT64_C(1024)
#define MAX_THREADS 64
/* files that a thread takes at a time. Reading a small file takes less time than waking a thread. */
#define BATCH 8u

struct ahead_slot {
	struct read_item item;
	uint64_t charged_bytes; /* bytes charged to the budget */
	bool done;
};

struct read_ahead {
	const struct pack_source *source;
	const uint64_t *order;
	size_t n;
	struct read_ahead_options options;

	pthread_mutex_t lock;
	pthread_cond_t filled; /* signals that the slot for which the caller waits is filled */
	pthread_cond_t space;  /* signals that many slots and much of the budget are free, or stop */
	unsigned n_idle;       /* threads that wait for space */
	struct ahead_slot slots[N_SLOTS];
	size_t next_read; /* place in the order that the next free thread takes */
	size_t next_out;  /* place that the caller gets next */
	bool holding;     /* the caller still uses slot next_out - 1 */
	bool waiting;     /* the caller waits for slot next_out */
	uint64_t used_bytes;
	bool stop;
	pthread_t threads[MAX_THREADS];
	unsigned n_threads;
};

static int read_sample(const struct read_ahead *ra, const struct source_file *file, struct read_item *item)
{
	const struct snapshot *snapshot = dataset_snapshot(ra->source->dataset);
	struct snapshot_sample sample = {0};
	uint64_t number;
	int r = snapshot_by_path(snapshot, (uint64_t)(file - ra->source->files), &number);

	if (r == 0)
		r = snapshot_sample_get(snapshot, number, &sample);
	if (r < 0)
		return r;
	item->data = malloc(sample.bytes ? sample.bytes : 1);
	if (!item->data)
		return -ENOMEM;
	item->bytes = sample.bytes;
	item->mode = sample.mode;
	item->mtime_ns = file->mtime_ns;
	return sample_read(snapshot, dataset_store(ra->source->dataset), &sample, item->data, sample.bytes,
			   &item->note);
}

static int read_file(const struct read_ahead *ra, const struct source_file *file, struct read_item *item)
{
	/* O_NONBLOCK, because what was a regular file during the walk may have become a FIFO. */
	_cleanup_(closep) int fd = openat(ra->source->dir_fd, source_file_path(ra->source, file).text,
					  O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	size_t done = 0;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ESTALE;
	if ((uint64_t)st.st_size > ra->options.max_bytes)
		return -EFBIG;
	item->mode = st.st_mode;
	item->mtime_ns =
	    st.st_mtim.tv_sec < 0 ? 0 : (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	/* One byte more than expected, so that growth is noticed. */
	item->data = malloc((size_t)st.st_size + 1);
	if (!item->data)
		return -ENOMEM;
	int r = fd_read(fd, item->data, (size_t)st.st_size + 1, &done);

	if (r == 0 && done != (size_t)st.st_size)
		r = -ESTALE;
	item->bytes = done;
	return r;
}

/* Reads a file's bytes, and rewrites them if they are to be packed in another form. */
static int fetch(const struct read_ahead *ra, const struct source_file *file, struct read_item *item)
{
	void *made = NULL;
	size_t made_bytes = 0;
	int r = ra->source->dataset ? read_sample(ra, file, item) : read_file(ra, file, item);

	if (r < 0 || !ra->options.rewrite)
		return r;
	item->source_bytes = item->bytes;
	item->rewritten = ra->options.rewrite(item->data, item->bytes, &made, &made_bytes, &item->note);
	if (made) {
		free(item->data);
		item->data = made;
		item->bytes = made_bytes;
	}
	return item->rewritten < 0 ? item->rewritten : 0;
}

/* Called with the lock held. Returns true if a thread may read the next file. The one for which the caller
 * waits may always be read; otherwise nothing would ever be released. */
static bool may_read(const struct read_ahead *ra)
{
	size_t ahead = ra->next_read - ra->next_out + ra->holding;

	if (ra->next_read >= ra->n || ahead >= N_SLOTS)
		return false;
	return ra->next_read == ra->next_out ||
	       ra->used_bytes + ra->source->files[ra->order[ra->next_read]].bytes <= ra->options.budget_bytes;
}

/* Called with the lock held. Takes up to BATCH places. */
static unsigned claim(struct read_ahead *ra, size_t *ret_first)
{
	unsigned n = 0;

	*ret_first = ra->next_read;
	while (n < BATCH && may_read(ra)) {
		struct ahead_slot *slot = &ra->slots[ra->next_read % N_SLOTS];

		*slot =
		    (struct ahead_slot){.charged_bytes = ra->source->files[ra->order[ra->next_read]].bytes};
		ra->used_bytes += slot->charged_bytes;
		ra->next_read++;
		n++;
	}
	return n;
}

static void *run(void *argument)
{
	struct read_ahead *ra = argument;
	struct read_item items[BATCH];
	size_t first;

	pthread_mutex_lock(&ra->lock);
	while (!ra->stop && ra->next_read < ra->n) {
		unsigned n = claim(ra, &first);

		if (n == 0) {
			ra->n_idle++;
			pthread_cond_wait(&ra->space, &ra->lock);
			ra->n_idle--;
			continue;
		}
		pthread_mutex_unlock(&ra->lock);
		for (unsigned i = 0; i < n; i++) {
			const struct source_file *file = &ra->source->files[ra->order[first + i]];

			items[i] = (struct read_item){.file = file};
			items[i].result = fetch(ra, file, &items[i]);
		}
		pthread_mutex_lock(&ra->lock);
		for (unsigned i = 0; i < n; i++) {
			ra->slots[(first + i) % N_SLOTS].item = items[i];
			ra->slots[(first + i) % N_SLOTS].done = true;
		}
		if (ra->waiting && ra->next_out >= first && ra->next_out < first + n)
			pthread_cond_signal(&ra->filled);
	}
	pthread_mutex_unlock(&ra->lock);
	return NULL;
}

static int start_threads(struct read_ahead *ra, unsigned n_threads)
{
	int r = 0;

	while (ra->n_threads < n_threads && r == 0) {
		r = thread_start(&ra->threads[ra->n_threads], run, ra);
		ra->n_threads += r == 0;
	}
	return ra->n_threads ? 0 : r; /* fewer threads than requested suffice */
}

int read_ahead_new(const struct pack_source *source, const uint64_t *order, size_t n,
		   const struct read_ahead_options *options, struct read_ahead **ret)
{
	struct read_ahead *ra = calloc(1, sizeof(*ra));

	if (!ra)
		return -ENOMEM;
	ra->source = source;
	ra->order = order;
	ra->n = n;
	ra->options = *options;
	pthread_mutex_init(&ra->lock, NULL);
	pthread_cond_init(&ra->filled, NULL);
	pthread_cond_init(&ra->space, NULL);
	int r = start_threads(ra, options->n_threads < MAX_THREADS ? options->n_threads : MAX_THREADS);

	if (r < 0) {
		read_ahead_free(ra);
		return r;
	}
	*ret = ra;
	return 0;
}

void read_ahead_free(struct read_ahead *ra)
{
	if (!ra)
		return;
	pthread_mutex_lock(&ra->lock);
	ra->stop = true;
	pthread_cond_broadcast(&ra->space);
	pthread_mutex_unlock(&ra->lock);
	for (unsigned i = 0; i < ra->n_threads; i++)
		pthread_join(ra->threads[i], NULL);
	for (size_t i = 0; i < N_SLOTS; i++)
		free(ra->slots[i].item.data);
	pthread_cond_destroy(&ra->space);
	pthread_cond_destroy(&ra->filled);
	pthread_mutex_destroy(&ra->lock);
	free(ra);
}

/* Called with the lock held. Threads are woken when there is space for several files, not for each one, and
 * always before the caller could wait for a place that none of them has taken. */
static void wake_readers(struct read_ahead *ra)
{
	size_t ahead = ra->next_read - ra->next_out;

	if (ra->n_idle && (ra->next_read == ra->next_out ||
			   (ra->used_bytes <= ra->options.budget_bytes / 4 * 3 && ahead <= N_SLOTS / 4 * 3)))
		pthread_cond_broadcast(&ra->space);
}

static void release(struct read_ahead *ra, struct ahead_slot *slot)
{
	free(slot->item.data);
	ra->used_bytes -= slot->charged_bytes;
	*slot = (struct ahead_slot){0};
	ra->holding = false;
}

struct read_item read_ahead_next(struct read_ahead *ra)
{
	assert(ra->next_out < ra->n);
	pthread_mutex_lock(&ra->lock);
	if (ra->holding)
		release(ra, &ra->slots[(ra->next_out - 1) % N_SLOTS]);
	wake_readers(ra);
	struct ahead_slot *slot = &ra->slots[ra->next_out % N_SLOTS];

	ra->waiting = true;
	while (!slot->done)
		pthread_cond_wait(&ra->filled, &ra->lock);
	ra->waiting = false;
	ra->next_out++;
	ra->holding = true;
	pthread_mutex_unlock(&ra->lock);
	return slot->item;
}
