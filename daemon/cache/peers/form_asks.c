/* SPDX-License-Identifier: Apache-2.0 */
#include "form_asks.h"

#include <errno.h>
#include <stdlib.h>

#include "cache.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "sharers.h"

/* The batch waits for them: a link that is worth it is faster by far. */
#define PATIENCE_NS (NS_PER_S / 2)
/* Forms differ in size. */
#define ROOM_TIMES 1.5
#define ROOM_MORE  ((uint64_t)256 << 10)

void form_ask_free(struct form_ask *a)
{
	struct cache *c = a->cache;

	if (a->memory)
		forms_unpin(c, a->memory);
	c->gives.forms.n_asks--;
	job_unref(a->job);
	sharer_unref(a->sharer);
	free(a->came);
	free(a->runs);
	free(a);
}

/* Of memory that nobody can change any more: so what is checked is what decoders read. */
static int take(struct form_ask *a)
{
	int r = forms_visit_seal(a->memory), n;

	if (r < 0)
		return r;
	n = form_answer_check(a->memory->memory.data, a->read.answer_bytes, &a->key, a->runs, a->n_runs);
	if (n < 0)
		return n;
	a->came = calloc((size_t)n, sizeof(*a->came));
	if (!a->came)
		return -ENOMEM;
	for (int i = 0; i < n; i++) {
		struct form_answer_entry e = form_answer_entry(a->memory->memory.data, (uint32_t)i);

		if (form_answer_is_whole(a->memory->memory.data, &e))
			a->came[a->n_came++] = e;
		else
			a->is_spoilt = true;
	}
	return 0;
}

static void take_work(struct pool_task *task)
{
	struct form_ask *a = (struct form_ask *)((char *)task - offsetof(struct form_ask, task));

	a->result = take(a);
}

static uint64_t came_bytes(const struct form_ask *a)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < a->n_came; i++)
		bytes += a->came[i].bytes;
	return bytes;
}

static void count(struct form_ask *a)
{
	struct cache *c = a->cache;
	uint64_t bytes = came_bytes(a);

	c->gives.forms.in += a->n_came;
	c->gives.forms.in_bytes += bytes;
	a->job->counters.peer_forms += a->n_came;
	a->job->counters.peer_form_bytes += bytes;
	if (a->result != -EBADMSG && a->result != -EBUSY && !a->is_spoilt)
		return;
	c->gives.forms.spoilt++;
	form_pace_fail(&a->sharer->forms, clock_monotonic_ns());
	log_limited(
	    c->lines_of(c->user, a->job->uid), LOG_LEVEL_WARNING,
	    "node %s gave decoded forms that are not what was decoded: their samples are decoded here",
	    a->read.node);
}

static void take_done(struct pool_task *task)
{
	struct form_ask *a = (struct form_ask *)((char *)task - offsetof(struct form_ask, task));

	count(a);
	a->done(a);
}

static void on_done(struct cluster_read *read, int result, const struct error *err)
{
	struct form_ask *a = (struct form_ask *)read;
	struct form_pace *pace = &a->sharer->forms;
	struct cache *c = a->cache;
	uint64_t now_ns = clock_monotonic_ns();

	(void)err;
	if (result == 0 && read->answer_bytes > a->memory->memory.bytes)
		result = -EBADMSG;
	if (result == 0)
		result = forms_visit_cut(c, a->memory, read->answer_bytes);
	form_pace_end(pace, result == 0 ? read->answer_bytes : 0,
		      result == 0 || result == -ENODATA || result == -ENOENT ? a->n_asked : 0,
		      result == 0 ? a->n_asked : 0, now_ns);
	if (result == 0) {
		a->task = (struct pool_task){.work = take_work, .done = take_done};
		pool_submit(c->pool, &a->job->lane, &a->task);
		return;
	}
	if (result == -ETIMEDOUT) {
		c->gives.forms.late++;
		form_pace_fail(pace, now_ns);
	}
	a->done(a);
}

static int make_runs(struct form_ask *a, const uint64_t *samples, uint32_t n)
{
	a->runs = calloc(n, sizeof(*a->runs));
	if (!a->runs)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t number = (uint32_t)(samples[i] - a->first_sample);
		struct net_range *last = a->n_runs > 0 ? &a->runs[a->n_runs - 1] : NULL;

		if (last && last->offset + last->bytes == number) {
			last->bytes++;
		} else if (a->n_runs < NET_MAX_RUNS) {
			a->runs[a->n_runs++] = (struct net_range){.offset = number, .bytes = 1};
		} else {
			break;
		}
		a->n_asked++;
	}
	return 0;
}

static int ask(struct form_ask *a, const struct snapshot_chunk *meta, uint64_t bytes)
{
	uint64_t room = (uint64_t)(ROOM_TIMES * (double)bytes) + ROOM_MORE;
	int r;

	if (room > NET_FORMS_MAX)
		room = NET_FORMS_MAX;
	a->memory = forms_visit(a->cache, room);
	if (!a->memory)
		return -ENOSPC;
	a->begin_ns = clock_monotonic_ns();
	a->read = (struct cluster_read){.group = a->sharer->group,
					.chunk = meta->id,
					.bytes = room,
					.ranges = a->runs,
					.n_ranges = a->n_runs,
					.is_forms = true,
					.forms_key = (uint32_t)a->key.low,
					.memory_fd = a->memory->memory.fd,
					.patience_ns = PATIENCE_NS,
					.done = on_done};
	r = cluster_fetch(&a->read);
	if (r == 0)
		form_pace_begin(&a->sharer->forms, a->begin_ns);
	return r;
}

int form_ask_begin(struct sharer *m, struct job *job, const struct forms *f, uint64_t chunk,
		   const uint64_t *samples, uint32_t n, uint64_t bytes, void (*done)(struct form_ask *ask),
		   void *user)
{
	struct cache *c = m->cache;
	struct snapshot_chunk meta;
	struct form_ask *a;
	int r;

	if (c->gives.forms.n_asks >= FORM_ASKS_MAX || !m->group || n == 0)
		return -EAGAIN;
	r = snapshot_chunk_get(m->dataset->snapshot, chunk, &meta);
	if (r < 0)
		return r;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	c->gives.forms.n_asks++;
	a->cache = c;
	a->sharer = sharer_ref(m);
	a->job = job_ref(job);
	a->key = f->sum;
	a->first_sample = meta.first_sample;
	a->done = done;
	a->user = user;
	r = make_runs(a, samples, n);
	if (r == 0)
		r = ask(a, &meta, bytes);
	if (r < 0)
		form_ask_free(a);
	return r;
}
