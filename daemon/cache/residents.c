/* SPDX-License-Identifier: Apache-2.0 */
#include "residents.h"

#include "cache.h"
#include "client/residents.h"

static resident_entry *entry_of(const struct cached_dataset *d, uint64_t chunk)
{
	return (resident_entry *)d->residents.memory.data + chunk;
}

void residents_enter(struct cached_dataset *d, uint64_t chunk)
{
	struct residents *r = &d->residents;

	if (!r->memory.data)
		return;
	if (++r->n_stays == 0)
		r->n_stays = 1;
	atomic_store_explicit(entry_of(d, chunk), (uint64_t)r->n_stays << 32 | d->chunks[chunk].segment->id,
			      memory_order_release);
}

void residents_leave(struct cached_dataset *d, uint64_t chunk)
{
	if (!d->residents.memory.data)
		return;
	atomic_store_explicit(entry_of(d, chunk), 0, memory_order_relaxed);
	/* No later write to the chunk's memory may be seen before this one. */
	atomic_thread_fence(memory_order_seq_cst);
}

bool residents_have(const struct cached_dataset *d, uint64_t chunk)
{
	return d->residents.memory.data && residents_look(entry_of(d, chunk)) != 0;
}

static int make(struct cached_dataset *d)
{
	uint64_t bytes = (d->info.n_chunks + 1) * sizeof(resident_entry);
	int r = shared_memory_new("diesel-residents", bytes, SHARED_MAPPABLE, &d->residents.memory);

	for (uint64_t i = 0; r == 0 && i < d->info.n_chunks; i++)
		if (d->chunks[i].state == CHUNK_READY && !d->chunks[i].part)
			residents_enter(d, i);
	return r;
}

int residents_lend(struct cached_dataset *d, int *ret_fd)
{
	int r = d->residents.memory.data ? 0 : make(d);

	return r < 0 ? r : shared_memory_reader(d->residents.memory.fd, ret_fd);
}

void residents_free(struct residents *r)
{
	if (r->memory.data)
		shared_memory_free(&r->memory);
}
