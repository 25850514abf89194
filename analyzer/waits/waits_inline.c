/* SPDX-License-Identifier: Apache-2.0 */
#include "waits.h"

#include <errno.h>
#include <stdlib.h>

#include "calls.h"
#include "downloads.h"

/*
 * No worker, no mark: the trainer opens, reads and decodes sample after sample between two steps. A stretch
 * of computing between two file calls that is far longer than decoding a sample separates reading a batch
 * from anything else that touches files (logging, an import, the batch of an evaluation).
 */
#define OUTLIER_FACTOR 8
#define OUTLIER_MIN_NS UINT64_C(5000000)
#define SAMPLE_GAP_NS  UINT64_C(300000) /* of computing; less lies between two calls for one sample */

/* A file call, a group of them or a page fault of the trainer that may be the reading of samples. */
struct touch {
	uint64_t begin_ns, end_ns;
	uint64_t busy_ns; /* time in calls */
	uint64_t gap_ns;  /* CPU time since the touch before it, if that was in the same step */
	size_t step;      /* number of backward passes before it */
	size_t n_opens;
	bool first;  /* of its step */
	bool closes; /* only closes a file */
};

/* A CPU time between two samples, and how often it was seen. */
struct gap {
	uint64_t ns;
	size_t n;
};

struct touches {
	struct touch *items;
	size_t n;
	bool by_open;    /* samples begin with an open; else with a touch after at least SAMPLE_GAP_NS of
			    computing */
	uint64_t gap_ns; /* CPU time between two samples, median */
};

static int touch_compare(const void *left, const void *right)
{
	const struct touch *a = left, *b = right;

	return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

static int gap_compare(const void *left, const void *right)
{
	const struct gap *a = left, *b = right;

	return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static uint64_t gaps_median(struct gap *gaps, size_t n_gaps)
{
	size_t n = 0, half;

	qsort(gaps, n_gaps, sizeof(*gaps), gap_compare);
	for (size_t i = 0; i < n_gaps; i++)
		n += gaps[i].n;
	half = n / 2;
	for (size_t i = 0; i < n_gaps; i++) {
		if (half < gaps[i].n)
			return gaps[i].ns;
		half -= gaps[i].n;
	}
	return 0;
}

static int touches_collect(const struct timeline_thread *trainer, const struct interval_list *checkpoints,
			   const struct downloads *downloads, struct touches *touches)
{
	size_t step = 0;

	touches->items = calloc(trainer->n_calls + trainer->n_offs + 1, sizeof(*touches->items));
	if (!touches->items)
		return -ENOMEM;
	for (size_t i = 0; i < trainer->n_calls; i++) {
		const struct timeline_call *call = &trainer->calls[i];

		/* What began before the recording says nothing about where the batch began. */
		if (downloads_touches(downloads, call) &&
		    !interval_list_cover(checkpoints, call->begin_ns, call->begin_ns + 1) &&
		    !(call->flags & EVENT_FLAG_CLIPPED))
			touches->items[touches->n++] = (struct touch){.begin_ns = call->begin_ns,
								      .end_ns = call->end_ns,
								      .busy_ns = call->busy_ns,
								      .n_opens = call_opens(call),
								      .closes = call_is_close(call)};
	}
	for (size_t i = 0; i < trainer->n_offs; i++) {
		const struct timeline_off *off = &trainer->offs[i];

		if (timeline_off_is_fault(trainer, off))
			touches->items[touches->n++] = (struct touch){.begin_ns = off->begin_ns,
								      .end_ns = off->end_ns,
								      .busy_ns = off->end_ns - off->begin_ns};
	}
	qsort(touches->items, touches->n, sizeof(*touches->items), touch_compare);
	for (size_t i = 0; i < touches->n; i++) {
		struct touch *touch = &touches->items[i];

		while (step < trainer->n_steps && trainer->steps[step] <= touch->begin_ns)
			step++;
		touch->step = step;
		touch->first = !i || touches->items[i - 1].step != step;
		if (!touch->first)
			touch->gap_ns =
			    timeline_account(trainer, touches->items[i - 1].end_ns, touch->begin_ns).cpu_ns;
	}
	return 0;
}

static size_t touch_samples(const struct touches *touches, size_t i)
{
	const struct touch *touch = &touches->items[i];

	if (touches->by_open)
		return touch->n_opens;
	return touch->first || touch->gap_ns >= SAMPLE_GAP_NS;
}

/* Finds how samples begin and how long each computes, from all steps but the first, which is full of
 * imports. */
static int gaps_measure(struct touches *touches)
{
	struct gap *gaps = calloc(2 * touches->n + 1, sizeof(*gaps));
	size_t n_opens = 0, n = 0;

	if (!gaps)
		return -ENOMEM;
	for (size_t i = 0; i < touches->n; i++)
		n_opens += touches->items[i].step ? touches->items[i].n_opens : 0;
	touches->by_open = n_opens > 0;
	for (size_t i = 0; i < touches->n; i++) {
		const struct touch *touch = &touches->items[i];
		size_t n_samples = touch_samples(touches, i);

		if (!touch->step || !n_samples)
			continue;
		if (!touch->first)
			gaps[n++] = (struct gap){touch->gap_ns, 1};
		/* A group of calls does not say when each was, only how much time lay between them in all. */
		if (n_samples > 1)
			gaps[n++] = (struct gap){
			    (touch->end_ns - touch->begin_ns - touch->busy_ns) / n_samples, n_samples - 1};
	}
	touches->gap_ns = gaps_median(gaps, n);
	free(gaps);
	return 0;
}

static size_t n_samples(const struct touches *touches, size_t begin, size_t end)
{
	size_t n = 0;

	for (size_t i = begin; i < end; i++)
		n += touch_samples(touches, i);
	return n;
}

/* The touch after which the last sample is decoded. A file may be closed when that is done, as one that is
 * read and decoded in a `with` block. */
static const struct touch *last_read(const struct touches *touches, size_t begin, size_t end)
{
	const struct touch *last = &touches->items[end - 1];

	return end - 1 > begin && last->closes && last->gap_ns >= SAMPLE_GAP_NS ? last - 1 : last;
}

/* One batch: touches [begin, end). Its wait lasts until the last sample is decoded, but never into the step.
 */
static int batch_add(const struct timeline_thread *trainer, const struct touches *touches, size_t begin,
		     size_t end, struct data_waits *waits)
{
	const struct touch *last = &touches->items[end - 1];
	uint64_t limit_ns = last->step < trainer->n_steps ? trainer->steps[last->step] : trainer->last_ns;
	uint64_t end_ns = last->end_ns;
	struct data_wait wait = {.begin_ns = touches->items[begin].begin_ns};

	/* With one sample per batch there is no gap that shows how long decoding takes. */
	if (n_samples(touches, begin, end) > 1)
		end_ns = timeline_after_cpu(trainer, last_read(touches, begin, end)->end_ns, touches->gap_ns,
					    limit_ns);
	if (end_ns < last->end_ns)
		end_ns = last->end_ns;
	if (end < touches->n && touches->items[end].begin_ns < limit_ns)
		limit_ns = touches->items[end].begin_ns;
	wait.end_ns = end_ns < limit_ns ? end_ns : limit_ns;
	wait.ready_ns = wait.end_ns;
	/* A group's calls are put first and its computing after them: only how much of each there is
	 * matters. */
	for (size_t i = begin; i < end; i++)
		if (interval_list_add(&waits->file_calls, touches->items[i].begin_ns,
				      touches->items[i].begin_ns + touches->items[i].busy_ns) < 0)
			return -ENOMEM;
	return data_waits_add(waits, wait);
}

/* The end of the batch that begins at touch `begin`: a new step, or an outlier gap. */
static size_t batch_end(const struct touches *touches, size_t begin)
{
	uint64_t outlier_ns = OUTLIER_FACTOR * touches->gap_ns;
	size_t end = begin + 1;

	if (outlier_ns < OUTLIER_MIN_NS)
		outlier_ns = OUTLIER_MIN_NS;
	while (end < touches->n && touches->items[end].step == touches->items[begin].step &&
	       touches->items[end].gap_ns < outlier_ns)
		end++;
	return end;
}

/* The number of samples in a full batch: the most that a step after the first read in one go. */
static size_t batch_size(const struct touches *touches)
{
	size_t best = 0;

	for (size_t begin = 0, end; begin < touches->n; begin = end) {
		size_t n;

		end = batch_end(touches, begin);
		n = n_samples(touches, begin, end);
		if (touches->items[begin].step && n > best)
			best = n;
	}
	return best;
}

/* Before the first step everything reads files; only the last samples, one batch, are data. */
static size_t first_batch_begin(const struct touches *touches, size_t begin, size_t end, size_t n_batch)
{
	size_t n = 0;

	for (size_t i = end; i > begin; i--) {
		n += touch_samples(touches, i - 1);
		if (n_batch && n >= n_batch)
			return i - 1;
	}
	return begin;
}

int data_waits_find_inline(const struct timeline_thread *trainer, const struct interval_list *checkpoints,
			   struct data_waits *waits)
{
	struct downloads downloads = {0};
	struct touches touches = {0};
	size_t n_batch;
	int r;

	r = downloads_find(trainer, &downloads);
	if (r == 0)
		r = touches_collect(trainer, checkpoints, &downloads, &touches);
	downloads_free(&downloads);
	if (r == 0)
		r = gaps_measure(&touches);
	n_batch = r == 0 ? batch_size(&touches) : 0;
	for (size_t begin = 0, end; r == 0 && begin < touches.n; begin = end) {
		size_t first = begin, n;

		end = batch_end(&touches, begin);
		if (!touches.items[begin].step)
			first = first_batch_begin(&touches, begin, end, n_batch);
		/* Fewer than half a batch is a log file, a lazy import, a look into /proc; so is what
		 * follows the last step. */
		n = n_samples(&touches, first, end);
		if (n && 2 * n >= n_batch)
			r = batch_add(trainer, &touches, first, end, waits);
	}
	free(touches.items);
	interval_list_tidy(&waits->file_calls);
	return r;
}
