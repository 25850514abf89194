/* SPDX-License-Identifier: Apache-2.0 */
#include "purge_plan.h"

#include <errno.h>
#include <stdlib.h>

#include "dataset/chunk_id.h"
#include "dataset/version.h"
#include "lib/clock.h"
#include "lib/sorted.h"

struct collect {
	struct purge_plan *plan;
	bool kept; /* counts for the oldest version */
	struct error *err;
};

void purge_plan_free(struct purge_plan *p)
{
	buffer_free(&p->chunks);
	buffer_free(&p->samples);
	buffer_free(&p->log);
}

size_t purge_find_chunk(const struct purge_plan *p, const struct chunk_id *id)
{
	size_t n;
	const struct purge_chunk *chunks = purge_chunks(p, &n);
	size_t at = sorted_count(n, i, chunk_id_compare(&chunks[i].known.id, id) < 0);

	return at < n && chunk_id_compare(&chunks[at].known.id, id) == 0 ? at : SIZE_MAX;
}

static int compare_samples(const void *a, const void *b)
{
	const struct purge_sample *x = a, *y = b;

	if (x->chunk != y->chunk)
		return x->chunk < y->chunk ? -1 : 1;
	return (x->record > y->record) - (x->record < y->record);
}

struct purge_sample *purge_find_sample(const struct purge_plan *p, uint32_t chunk, uint32_t record)
{
	const struct purge_sample key = {.chunk = chunk, .record = record};

	return p->samples.bytes ? bsearch(&key, p->samples.data, p->samples.bytes / sizeof(key), sizeof(key),
					  compare_samples)
				: NULL;
}

static int no_memory(struct error *err)
{
	return error_errno(err, -ENOMEM, "purge");
}

static int take_chunk(const struct meta_chunk *chunk, void *context)
{
	struct collect *c = context;
	struct purge_chunk entry = {.known = *chunk};

	return buffer_append(&c->plan->chunks, &entry, sizeof(entry)) < 0 ? no_memory(c->err) : 0;
}

static int take_change(const struct change *change, void *context)
{
	struct collect *c = context;

	return buffer_append(&c->plan->log, change, sizeof(*change)) < 0 ? no_memory(c->err) : 0;
}

static struct purge_chunk *chunk_of(struct collect *c, const struct meta_path *path)
{
	size_t at = purge_find_chunk(c->plan, &path->chunk), n;

	if (at == SIZE_MAX)
		error_set(c->err, -EBADMSG,
			  "the metadata has a path in an unknown chunk: run `dieselctl rebuild`");
	return at == SIZE_MAX ? NULL : purge_chunks(c->plan, &n) + at;
}

static int count_path(const struct meta_path *path, void *context)
{
	struct collect *c = context;
	struct purge_chunk *chunk = chunk_of(c, path);

	if (!chunk)
		return -EBADMSG;
	++*(c->kept ? &chunk->n_kept : &chunk->n_live);
	return 0;
}

static int take_sample(const struct meta_path *path, void *context)
{
	struct collect *c = context;
	const struct purge_chunk *chunk = chunk_of(c, path);

	if (!chunk)
		return -EBADMSG;
	struct purge_sample sample = {.chunk = (uint32_t)(chunk - (struct purge_chunk *)c->plan->chunks.data),
				      .record = path->record_index};

	if (!purge_is_holed(chunk))
		return 0;
	return buffer_append(&c->plan->samples, &sample, sizeof(sample)) < 0 ? no_memory(c->err) : 0;
}

/* The oldest of the versions that are to be kept, which is one that can be read. */
static uint64_t find_oldest(struct purge_plan *p, const struct purge_options *o)
{
	const struct change *log = (const struct change *)p->log.data;
	size_t n = p->log.bytes / sizeof(*log);
	uint64_t made = p->info.version + 1, now_ns = clock_realtime_ns(), oldest;

	p->readable = n && log[n - 1].version == p->info.version ? log[n - 1].oldest : p->info.version;
	oldest = o->keep >= made ? 1 : made - o->keep + 1;
	for (size_t i = 0; i < n; i++) {
		/* When another one took its place: a clock that went back keeps it. */
		uint64_t until_ns = i + 1 < n ? log[i + 1].time_ns : now_ns;

		if (log[i].version < oldest && log[i].version >= p->readable && o->older_ns &&
		    (until_ns > now_ns || now_ns - until_ns < o->older_ns))
			oldest = log[i].version;
	}
	if (o->older_ns && oldest > p->info.version) /* also where no log has it */
		oldest = p->info.version;
	return oldest > p->readable ? oldest : p->readable;
}

/* What the oldest version has of each chunk. */
static int count_kept(struct purge_plan *p, const struct purge_options *o, struct error *err)
{
	struct collect c = {.plan = p, .kept = true, .err = err};
	struct place *place = NULL;
	struct meta *meta = NULL;
	size_t n;
	struct purge_chunk *chunks = purge_chunks(p, &n);

	if (p->oldest >= p->info.version) {
		for (size_t i = 0; i < n; i++)
			chunks[i].n_kept =
			    p->oldest > p->info.version && purge_is_holed(&chunks[i]) ? 0 : chunks[i].n_live;
		return 0;
	}
	int r = version_open(o->dataset, p->oldest, &place, err);

	if (r == 0)
		r = meta_open_at(place->dir_fd, place->folder, META_READ, &meta, err);
	if (r == 0)
		r = meta_each_path(meta, count_path, &c, err);
	meta_free(meta);
	place_close(place);
	return r;
}

/* The newest chunk of the oldest version; NULL: it has all. */
static const struct chunk_id *last_of_oldest(const struct purge_plan *p)
{
	const struct change *log = (const struct change *)p->log.data;
	size_t n = p->log.bytes / sizeof(*log);

	for (size_t i = 0; i < n && p->oldest < p->info.version; i++)
		if (log[i].version == p->oldest)
			return &log[i].newest;
	return NULL;
}

/* A tombstone has to stay while an older chunk stays of which something is gone: it may be what hides that.
 */
static void choose(struct purge_plan *p)
{
	const struct chunk_id *last = last_of_oldest(p);
	size_t n, first_holed = SIZE_MAX;
	struct purge_chunk *chunks = purge_chunks(p, &n);

	for (size_t i = 0; i < n; i++) {
		struct purge_chunk *c = &chunks[i];

		if (last && chunk_id_compare(&c->known.id, last) > 0)
			return;
		if (purge_is_tombstone(c)) {
			c->goes = first_holed == SIZE_MAX;
			continue;
		}
		c->goes = c->n_kept == 0;
		if (!c->goes && c->n_kept < c->known.n_records && first_holed == SIZE_MAX)
			first_holed = i;
	}
}

int purge_plan_make(struct purge_plan *p, struct meta *meta, const struct purge_options *o, struct error *err)
{
	struct collect c = {.plan = p, .err = err};
	int r = meta_each_chunk(meta, take_chunk, &c, err);

	if (r == 0)
		r = meta_each_change(meta, take_change, &c, err);
	if (r == 0)
		r = meta_each_path(meta, count_path, &c, err);
	if (r == 0)
		r = meta_each_path(meta, take_sample, &c, err);
	if (r < 0)
		return r;
	if (p->samples.bytes)
		qsort(p->samples.data, p->samples.bytes / sizeof(struct purge_sample),
		      sizeof(struct purge_sample), compare_samples);
	p->oldest = find_oldest(p, o);
	r = count_kept(p, o, err);
	if (r == 0)
		choose(p);
	return r;
}
