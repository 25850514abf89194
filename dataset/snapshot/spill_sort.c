/* SPDX-License-Identifier: Apache-2.0 */
#include "spill_sort.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/chunk/buffer.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/sorted.h"

#define NAME_FALLBACK ".snapshot.sort.tmp" /* used briefly if unnamed files cannot be made */
#define BLOCK_BYTES   (1u << 20)           /* bytes of a run that are read or written at a time */

/* An entry in memory: its data is in `data`. In a run, an entry is a struct stored, followed by the data. */
struct item {
	uint64_t key;
	uint64_t at; /* offset of its struct stored in `data` */
};

struct stored {
	uint64_t key;
	uint32_t bytes;
	uint32_t zero;
};

/* The unread rest of a run: from offset to end in the file, and from `at` on in the block. */
struct run {
	uint64_t offset, end;
	unsigned char *block;
	size_t at, n;
	struct spill_entry entry; /* the first entry, parsed from the block */
};

struct spill_sort {
	int dir_fd, fd;
	size_t budget;
	spill_compare *compare;
	struct item *items;
	size_t n_items, n_items_allocated;
	struct buffer data;
	bool is_sorted; /* items were added in order, as from a metadata store that sorts its paths */
	uint64_t file_bytes;
	struct run *runs;
	size_t n_runs, n_runs_allocated;
	size_t block_bytes;
	size_t *heap; /* heap of the runs, by their first entries */
	size_t n_heap;
	bool is_reading;
	size_t next_item; /* next item in memory, if nothing was spilled */
};

int spill_sort_new(int dir_fd, size_t budget, spill_compare *compare, struct spill_sort **ret)
{
	struct spill_sort *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->dir_fd = dir_fd;
	s->fd = -EBADF;
	s->budget = budget;
	s->compare = compare;
	s->is_sorted = true;
	*ret = s;
	return 0;
}

void spill_sort_free(struct spill_sort *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_runs; i++)
		free(s->runs[i].block);
	free(s->runs);
	free(s->heap);
	free(s->items);
	buffer_free(&s->data);
	closep(&s->fd);
	free(s);
}

static int open_file(struct spill_sort *s)
{
	s->fd = openat(s->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (s->fd >= 0)
		return 0;
	unlinkat(s->dir_fd, NAME_FALLBACK, 0);
	s->fd = openat(s->dir_fd, NAME_FALLBACK, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->fd < 0)
		return -errno;
	return unlinkat(s->dir_fd, NAME_FALLBACK, 0) < 0 ? -errno : 0;
}

static int compare_entries(const struct spill_sort *s, uint64_t key_a, const void *a, uint64_t key_b,
			   const void *b)
{
	int order = compare_numbers(key_a, key_b);

	return order || !s->compare ? order : s->compare(a, b);
}

static const void *data_of(const struct spill_sort *s, const struct item *item)
{
	return s->data.data + item->at + sizeof(struct stored);
}

static int compare_items(const void *left, const void *right, void *sort)
{
	const struct spill_sort *s = sort;
	const struct item *a = left, *b = right;
	int order = compare_entries(s, a->key, data_of(s, a), b->key, data_of(s, b));

	return order ? order : compare_numbers(a->at, b->at);
}

static void sort_items(struct spill_sort *s)
{
	if (!s->is_sorted)
		qsort_r(s->items, s->n_items, sizeof(*s->items), compare_items, s);
	s->is_sorted = true;
}

static const struct stored *stored_of(const struct spill_sort *s, const struct item *item)
{
	return (const struct stored *)(s->data.data + item->at);
}

static int write_run(struct spill_sort *s)
{
	_cleanup_(buffer_free) struct buffer block = {0};
	struct run run = {.offset = s->file_bytes};
	int r = s->fd < 0 ? open_file(s) : 0;

	sort_items(s);
	if (r == 0)
		r = array_reserve(s->runs, s->n_runs, s->n_runs_allocated);
	for (size_t i = 0; i < s->n_items && r == 0; i++) {
		const struct stored *stored = stored_of(s, &s->items[i]);

		r = buffer_append(&block, stored, sizeof(*stored) + stored->bytes);
		if (r < 0 || (block.bytes < BLOCK_BYTES && i + 1 < s->n_items))
			continue;
		r = fd_write_at(s->fd, block.data, block.bytes, s->file_bytes);
		s->file_bytes += block.bytes;
		block.bytes = 0;
	}
	if (r < 0)
		return r;
	run.end = s->file_bytes;
	s->runs[s->n_runs++] = run;
	s->n_items = 0;
	s->data.bytes = 0;
	return 0;
}

int spill_sort_add(struct spill_sort *s, uint64_t key, const void *data, uint32_t bytes)
{
	struct stored stored = {.key = key, .bytes = bytes};
	/* Each item counts twice, because sorting needs a copy of the items. */
	size_t needed = 2 * sizeof(struct item) * (s->n_items + 1) + s->data.bytes + sizeof(stored) + bytes;
	int r = needed > s->budget && s->n_items ? write_run(s) : 0;

	if (r == 0)
		r = array_reserve(s->items, s->n_items, s->n_items_allocated);
	if (r < 0)
		return r;
	struct item item = {.key = key, .at = s->data.bytes};

	/* Align the entry, for struct stored and for data that begins with a number. */
	r = buffer_reserve(&s->data, s->data.bytes + sizeof(stored) + bytes + 8);
	if (r < 0)
		return r;
	buffer_append(&s->data, &stored, sizeof(stored));
	buffer_append(&s->data, data, bytes);
	buffer_zero_to(&s->data, (s->data.bytes + 7) / 8 * 8);
	if (s->is_sorted && s->n_items && compare_items(&s->items[s->n_items - 1], &item, s) > 0)
		s->is_sorted = false;
	s->items[s->n_items++] = item;
	return 0;
}

/* Sets run->entry to the run's next entry. SPILL_SORT_END: the run has no more entries. */
static int advance(struct spill_sort *s, struct run *run)
{
	size_t left = run->n - run->at;
	struct stored stored = {0};

	if (left >= sizeof(stored))
		memcpy(&stored, run->block + run->at, sizeof(stored));
	if (left < sizeof(stored) || left < sizeof(stored) + stored.bytes) {
		size_t wanted = s->block_bytes - left, read = 0;

		if (left)
			memmove(run->block, run->block + run->at, left);
		if (wanted > run->end - run->offset)
			wanted = run->end - run->offset;
		int r = fd_read_at(s->fd, run->block + left, wanted, run->offset, &read);

		if (r == 0 && read < wanted)
			r = -EIO;
		if (r < 0)
			return r;
		run->offset += read;
		run->at = 0;
		run->n = left + read;
		if (run->n == 0)
			return SPILL_SORT_END;
		memcpy(&stored, run->block, sizeof(stored));
	}
	run->entry = (struct spill_entry){
	    .key = stored.key, .data = run->block + run->at + sizeof(stored), .bytes = stored.bytes};
	run->at += sizeof(stored) + stored.bytes;
	return SPILL_SORT_ENTRY;
}

static bool is_before(const struct spill_sort *s, size_t a, size_t b)
{
	const struct spill_entry *x = &s->runs[a].entry, *y = &s->runs[b].entry;
	int order = compare_entries(s, x->key, x->data, y->key, y->data);

	return order < 0 || (order == 0 && a < b);
}

static void sift_down(struct spill_sort *s, size_t at)
{
	for (;;) {
		size_t least = at, child = 2 * at + 1;

		for (size_t c = child; c < child + 2 && c < s->n_heap; c++)
			if (is_before(s, s->heap[c], s->heap[least]))
				least = c;
		if (least == at)
			return;
		size_t moved = s->heap[at];

		s->heap[at] = s->heap[least];
		s->heap[least] = moved;
		at = least;
	}
}

/* The longest entry must fit in a block. */
#define LEAST_BLOCK_BYTES (16u << 10)

static int begin_merge(struct spill_sort *s)
{
	int r = s->n_items ? write_run(s) : 0;

	free(steal_pointer(s->items));
	buffer_free(&s->data);
	s->heap = calloc(s->n_runs, sizeof(*s->heap));
	if (r == 0 && !s->heap)
		r = -ENOMEM;
	s->block_bytes = s->budget / s->n_runs;
	if (s->block_bytes > BLOCK_BYTES)
		s->block_bytes = BLOCK_BYTES;
	if (s->block_bytes < LEAST_BLOCK_BYTES)
		s->block_bytes = LEAST_BLOCK_BYTES;
	for (size_t i = 0; i < s->n_runs && r == 0; i++) {
		s->runs[i].block = malloc(s->block_bytes);
		r = s->runs[i].block ? advance(s, &s->runs[i]) : -ENOMEM;
		if (r == SPILL_SORT_ENTRY) {
			s->heap[s->n_heap++] = i;
			r = 0;
		}
	}
	for (size_t i = s->n_heap / 2; i-- > 0 && r == 0;)
		sift_down(s, i);
	return r;
}

static int next_in_memory(struct spill_sort *s, struct spill_entry *ret)
{
	if (s->next_item == s->n_items)
		return SPILL_SORT_END;
	const struct item *item = &s->items[s->next_item++];

	*ret = (struct spill_entry){
	    .key = item->key, .data = data_of(s, item), .bytes = stored_of(s, item)->bytes};
	return SPILL_SORT_ENTRY;
}

/* Returns the next entry of all runs. The entry returned before is still the first of its run until this
 * call. */
static int next_of_runs(struct spill_sort *s, struct spill_entry *ret, bool is_first)
{
	if (!is_first && s->n_heap) {
		int r = advance(s, &s->runs[s->heap[0]]);

		if (r < 0)
			return r;
		if (r == SPILL_SORT_END)
			s->heap[0] = s->heap[--s->n_heap];
		if (s->n_heap)
			sift_down(s, 0);
	}
	if (!s->n_heap)
		return SPILL_SORT_END;
	*ret = s->runs[s->heap[0]].entry;
	return SPILL_SORT_ENTRY;
}

int spill_sort_next(struct spill_sort *s, struct spill_entry *ret)
{
	bool is_first = !s->is_reading;

	s->is_reading = true;
	if (is_first) {
		if (!s->n_runs)
			sort_items(s);
		int r = s->n_runs ? begin_merge(s) : 0;

		if (r < 0)
			return r;
	}
	return s->n_runs ? next_of_runs(s, ret, is_first) : next_in_memory(s, ret);
}
