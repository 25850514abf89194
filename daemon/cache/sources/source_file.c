/* SPDX-License-Identifier: Apache-2.0 */
/* Storage: chunks in files, opened and read by the dataset's reader (reader.h). */
#include "source.h"

#include <errno.h>
#include <stdlib.h>

struct file_search {
	struct chunk_place *place; /* the place tried now; first that of the session that asked */
	uint64_t n_places;         /* places.n_added when the search began */
};

static void *file_find(struct chunk_load *l, const struct cached_want *want)
{
	struct file_search *f = l->dataset->identity.is_fetched ? NULL : calloc(1, sizeof(*f));

	(void)want;
	if (!f)
		return NULL;
	f->place = place_ref(l->place);
	f->n_places = l->dataset->places.n_added;
	return f;
}

static int file_begin(struct chunk_load *l)
{
	const struct file_search *f = l->storage.state;

	return readers_submit(&l->cache->readers, &l->dataset->reader, l->job->uid, &l->read, f->place->fd,
			      l->segment->memory.fd);
}

/* Moves on to the next place if a file is mounted over the chunk in this one. Places added during the read
 * count, too, so that a client that brings a good place does not find the chunk quarantined. */
static bool file_has_other_way(struct chunk_load *l)
{
	struct file_search *f = l->storage.state;
	struct chunk_place *first = l->dataset->places.first;
	struct chunk_place *next = f->place == l->place ? first : f->place->next;

	if (l->result != -EXDEV)
		return false;
	if (next == l->place)
		next = next->next;
	if (!next && l->dataset->places.n_added != f->n_places) {
		next = first;
		f->n_places = l->dataset->places.n_added;
	}
	if (!next)
		return false;
	place_ref(next);
	place_unref(f->place);
	f->place = next;
	return true;
}

static void file_end(struct chunk_load *l, enum source_end how)
{
	struct file_search *f = l->storage.state;

	(void)how;
	place_unref(f->place);
	free(f);
}

const struct chunk_source source_file = {
    .kind = SOURCE_STORAGE,
    .find = file_find,
    .begin = file_begin,
    .has_other_way = file_has_other_way,
    .end = file_end,
};
