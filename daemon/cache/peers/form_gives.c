/* SPDX-License-Identifier: Apache-2.0 */
#include "form_gives.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "form_answer.h"
#include "forms.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "pool.h"
#include "sharers.h"

struct form_give {
	struct pool_task task;
	struct cache *cache;
	struct job *job;
	struct cluster_question *question;
	struct checksum_128 key;
	uint32_t n;
	struct form_answer_entry entries[FORM_ANSWER_MAX];
	struct form_extent *from[FORM_ANSWER_MAX]; /* pinned until they are copied */
	uint32_t offset[FORM_ANSWER_MAX];          /* there */
	uint64_t bytes;
	struct form_extent *memory; /* of the answer */
	int fd;                     /* of that, for reading */
	int result;
};

static void give_free(struct form_give *g)
{
	struct cache *c = g->cache;

	for (uint32_t i = 0; i < g->n; i++)
		if (g->from[i])
			forms_unpin(c, g->from[i]);
	if (g->memory)
		forms_unpin(c, g->memory);
	closep(&g->fd);
	job_unref(g->job);
	c->gives.forms.n_gives--;
	free(g);
}

static struct forms *find_forms(const struct sharer *m, uint32_t key)
{
	for (struct forms *f = m->dataset->forms; f; f = f->next)
		if (f->uid == m->key.uid && (uint32_t)f->sum.low == key)
			return f;
	return NULL;
}

/* Adds the sample's form, if there is one, as long as all fit. */
static void add_sample(struct form_give *g, const struct forms *f, uint64_t first_sample, uint32_t number,
		       uint64_t room)
{
	struct form_extent *e;
	const struct form_entry *entry = forms_look(f, first_sample + number, &e);
	uint64_t bytes;

	if (!entry || !entry->is_summed || g->n == FORM_ANSWER_MAX)
		return;
	/* The table grows by this one's entry, which all behind it move up for. */
	bytes = form_answer_next(g->bytes, entry->bytes);
	if (bytes + form_answer_first(g->n + 1) > room)
		return;
	g->from[g->n] = e;
	g->offset[g->n] = entry->offset;
	g->entries[g->n++] = (struct form_answer_entry){
	    .sample = number, .bytes = entry->bytes, .offset = g->bytes, .xxh3 = entry->xxh3};
	g->bytes = bytes;
	forms_pin(e);
}

static void collect(struct form_give *g, const struct forms *f, const struct snapshot_chunk *meta,
		    const struct cluster_forms_wanted *wanted)
{
	uint64_t room = wanted->bytes < NET_FORMS_MAX ? wanted->bytes : NET_FORMS_MAX, first;
	uint32_t n_looked = 0; /* this is the loop's thread */

	for (uint32_t i = 0; i < wanted->n_runs; i++) {
		uint64_t at = wanted->runs[i].offset, end = at + wanted->runs[i].bytes;

		for (; at < end && at < meta->n_samples && n_looked < FORM_ANSWER_MAX; at++, n_looked++)
			add_sample(g, f, meta->first_sample, (uint32_t)at, room);
	}
	first = form_answer_first(g->n);
	for (uint32_t i = 0; i < g->n; i++)
		g->entries[i].offset += first;
	g->bytes += first;
}

static int write_all(const struct form_give *g)
{
	struct form_answer_head head;
	int fd = g->memory->memory.fd, r;

	form_answer_head_fill(&head, &g->key, g->entries, g->n);
	r = fd_write_at(fd, &head, sizeof(head), 0);
	if (r == 0)
		r = fd_write_at(fd, g->entries, g->n * sizeof(g->entries[0]), sizeof(head));
	for (uint32_t i = 0; i < g->n && r == 0; i++)
		r = fd_write_at(fd, g->from[i]->memory.data + g->offset[i], g->entries[i].bytes,
				g->entries[i].offset);
	return r;
}

static void give_work(struct pool_task *task)
{
	struct form_give *g = (struct form_give *)task;

	g->result = write_all(g);
	/* Who sends it can read it, and change nothing. */
	if (g->result == 0)
		g->result = shared_memory_reader(g->memory->memory.fd, &g->fd);
}

static void give_done(struct pool_task *task)
{
	struct form_give *g = (struct form_give *)task;
	struct cache *c = g->cache;

	for (uint32_t i = 0; i < g->n; i++) {
		forms_unpin(c, g->from[i]);
		g->from[i] = NULL;
	}
	if (g->result < 0) {
		cluster_refuse(g->question, g->result);
		give_free(g);
		return;
	}
	c->gives.forms.out += g->n;
	c->gives.forms.out_bytes += g->bytes;
	cluster_answer(g->question, g->fd, g->bytes, g);
}

/* 0: they are given later. */
static int give(struct cache *c, struct cluster_group *group, const struct chunk_id *id,
		const struct cluster_forms_wanted *wanted, struct cluster_question *question)
{
	struct sharer *m = sharers_find_group(c, group);
	struct forms *f = m ? find_forms(m, wanted->key) : NULL;
	struct snapshot_chunk meta;
	struct form_give *g;
	uint64_t chunk;

	if (!net_ranges_fit(wanted->runs, wanted->n_runs, NET_SAMPLE_END))
		return -EINVAL;
	if (!f || cached_find_chunk(m->dataset, id, &chunk) < 0 ||
	    snapshot_chunk_get(m->dataset->snapshot, chunk, &meta) < 0)
		return -ENOENT;
	g = c->gives.forms.n_gives < FORM_GIVES_MAX ? calloc(1, sizeof(*g)) : NULL;
	if (!g)
		return -EBUSY;
	c->gives.forms.n_gives++;
	g->cache = c;
	g->fd = -EBADF;
	g->job = job_ref(m->job);
	g->question = question;
	g->key = f->sum;
	collect(g, f, &meta, wanted);
	if (g->n > 0)
		g->memory = forms_visit(c, g->bytes);
	if (!g->memory) {
		int r = g->n > 0 ? -EBUSY : -ENODATA;

		give_free(g);
		return r;
	}
	g->task = (struct pool_task){.work = give_work, .done = give_done};
	pool_submit(c->pool, &g->job->lane, &g->task);
	return 0;
}

void form_gives_asked(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		      const struct cluster_forms_wanted *wanted, struct cluster_question *question)
{
	int r = give(user, group, chunk, wanted, question);

	if (r < 0)
		cluster_refuse(question, r);
}

void form_gives_given(void *user, void *answer)
{
	(void)user;
	give_free(answer);
}
