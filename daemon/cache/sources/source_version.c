/* SPDX-License-Identifier: Apache-2.0 */
/* Copies: chunks that another version of the dataset has in memory. */
#include "source.h"

#include <errno.h>
#include <stdlib.h>

struct version_copy {
	struct access_stamp stamp;      /* stamp of the chunk in the other version when it was found */
	struct cached_dataset *dataset; /* the chunk is pinned there while it is copied; NULL: not yet */
	uint64_t chunk;
	int fd; /* descriptor of its memory, borrowed */
};

/* Returns true if both datasets have their chunks in the same place, so that they may be versions of one. In
 * a bucket each has a folder of its own; there the user must be the same, and the chunk's contents decide. */
static bool has_chunks_of(const struct cached_dataset *d, const struct cached_dataset *other)
{
	const struct proof_identity *a = &d->identity, *b = &other->identity;

	if (d == other || a->is_fetched != b->is_fetched)
		return false;
	if (a->is_fetched)
		return a->rights.uid == b->rights.uid;
	return a->chunks_dev == b->chunks_dev && a->chunks_ino == b->chunks_ino;
}

/* Returns the segment of d that holds all of the wanted chunk, which another dataset's snapshot describes.
 * NULL: none. */
static struct segment *find_in(const struct cached_dataset *d, const struct snapshot_chunk *wanted,
			       uint64_t *ret_chunk)
{
	struct snapshot_chunk found = {0};
	const struct cached_chunk *k;
	uint64_t i;

	if (cached_find_chunk(d, &wanted->id, &i) < 0 || snapshot_chunk_get(d->snapshot, i, &found) < 0 ||
	    found.head_xxh3 != wanted->head_xxh3 || found.file_bytes != wanted->file_bytes)
		return NULL;
	k = &d->chunks[i];
	if (k->state != CHUNK_READY || k->part)
		return NULL;
	*ret_chunk = i;
	return k->segment;
}

/* Returns the chunk's segment in another version. NULL: none has it. */
static struct segment *find_ready(const struct chunk_load *l, struct cached_dataset **ret,
				  uint64_t *ret_chunk)
{
	for (struct cached_dataset *o = l->cache->datasets; o; o = o->next) {
		struct segment *s = has_chunks_of(o, l->dataset) ? find_in(o, &l->meta, ret_chunk) : NULL;

		if (s) {
			*ret = o;
			return s;
		}
	}
	return NULL;
}

/* Pins nothing: the storage may take any time to open the chunk's file. */
static void *version_find(struct chunk_load *l, const struct cached_want *want)
{
	struct cached_dataset *o;
	uint64_t chunk;
	const struct segment *s = find_ready(l, &o, &chunk);
	struct version_copy *v = s ? calloc(1, sizeof(*v)) : NULL;

	(void)want;
	if (!v)
		return NULL;
	v->stamp = s->stamp;
	load_expect(l, &v->stamp);
	return v;
}

static int version_begin(struct chunk_load *l)
{
	struct version_copy *v = l->copy.state;
	struct cached_dataset *o;
	uint64_t chunk;
	const struct segment *s = find_ready(l, &o, &chunk);

	if (!s || !access_stamp_equal(&s->stamp, &v->stamp))
		return -ESTALE;
	cache_pin(l->cache, o, chunk);
	v->dataset = o;
	v->chunk = chunk;
	v->fd = s->memory.fd;
	return 1;
}

static int version_memory(const struct chunk_load *l)
{
	return ((const struct version_copy *)l->copy.state)->fd;
}

static void version_end(struct chunk_load *l, enum source_end how)
{
	struct version_copy *v = l->copy.state;

	l->cache->counters.shared += how == SOURCE_USED;
	if (v->dataset)
		cache_unpin(v->dataset, v->chunk);
	free(v);
}

const struct chunk_source source_version = {
    .kind = SOURCE_NEAR,
    .copied_by = "a copy from another version",
    .find = version_find,
    .begin = version_begin,
    .memory = version_memory,
    .end = version_end,
};
