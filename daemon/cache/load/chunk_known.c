/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that need not be read from storage, if their file is still what it was and may still be read. */
#include "load.h"

bool load_is_known(const struct load *l)
{
	return l->carried || l->staged || l->shares || l->sharer;
}

/* The chunk in memory of another version of the dataset; NULL: no other one has it. */
static struct segment *find_shared(struct cache *c, const struct cached_dataset *d,
				   const struct snapshot_chunk *wanted, struct cached_dataset **ret,
				   uint64_t *ret_chunk)
{
	for (struct cached_dataset *o = c->datasets; o; o = o->next) {
		struct segment *s =
		    cached_has_chunks_of(o, d) ? cached_find_ready(o, wanted, ret_chunk) : NULL;

		if (s) {
			*ret = o;
			return s;
		}
	}
	return NULL;
}

bool load_note_shared(struct cache *c, struct load *l, const struct cached_dataset *d)
{
	struct cached_dataset *o;
	uint64_t chunk;
	const struct segment *s = find_shared(c, d, &l->meta, &o, &chunk);

	l->shares = s != NULL;
	if (s)
		l->shared_stamp = s->stamp;
	return s != NULL;
}

bool load_hold_shared(struct load *l)
{
	struct cached_dataset *o;
	uint64_t chunk;
	struct segment *s = find_shared(l->cache, l->dataset, &l->meta, &o, &chunk);

	if (!s || !access_stamp_equal(&s->stamp, &l->shared_stamp))
		return false;
	cache_pin(l->cache, o, chunk);
	l->sibling = o;
	l->sibling_chunk = chunk;
	l->sibling_fd = s->memory.fd;
	return true;
}

void load_drop_known(struct load *l)
{
	if (l->carried)
		cache_free_carried(l->cache, l->carried);
	if (l->staged)
		stage_let_go(l->cache->stage, l->staged);
	if (l->sibling)
		cache_unpin(l->sibling, l->sibling_chunk);
	l->carried = NULL;
	l->dataset->chunks[l->chunk].is_staged = false;
	l->staged = NULL;
	l->sibling = NULL;
	l->shares = false;
	load_end_asking(l);
	l->copies = false;
}

void load_order_known(struct load *l)
{
	struct reader_order *o = &l->read.order;

	o->is_known = load_is_known(l);
	o->only_check = l->sharer != NULL;
	if (!o->is_known)
		return;
	/* Whatever the file holds, it is not read: what comes from there is verified. */
	if (l->sharer)
		o->known = (struct access_stamp){.dev = l->dataset->identity.chunks_dev,
						 .bytes = l->meta.file_bytes};
	else
		o->known = l->carried ? l->carried->stamp : l->staged ? l->staged->stamp : l->shared_stamp;
}

const char *load_known_format(const struct load *l)
{
	return l->carried  ? "%s (carried over the restart); reading it from storage"
	       : l->staged ? "%s (as staged); reading it from storage"
	       : l->shares ? "%s (as another version has it); reading it from storage"
	       : l->sharer ? "%s (as another node has it); reading it from storage"
			   : "%s; reading it again";
}
