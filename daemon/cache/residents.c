/* SPDX-License-Identifier: Apache-2.0 */
#include "residents.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "client/residents.h"
#include "lib/clock.h"
#include "lib/list.h"

#define LOOK_NS (NS_PER_S / 10)
#define USED_NS (10 * NS_PER_S)

/* Uses of eight chunks. Most are 0, and a hundred clients of a large dataset have ten million. */
typedef _Atomic uint64_t uses_word;

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

int residents_lend(struct cached_dataset *d, struct resident_uses **ret, int *ret_table_fd, int *ret_uses_fd)
{
	int r = d->residents.memory.data ? 0 : make(d), table_fd;
	struct resident_uses *u;

	if (r == 0)
		r = shared_memory_reader(d->residents.memory.fd, &table_fd);
	if (r < 0)
		return r;
	u = calloc(1, sizeof(*u));
	r = u ? shared_memory_new("diesel-uses", d->info.n_chunks + 1, SHARED_CONTROL, &u->memory) : -ENOMEM;
	if (r < 0) {
		close(table_fd);
		free(u);
		return r;
	}
	LL_PREPEND(d->residents.uses, u);
	*ret = u;
	*ret_table_fd = table_fd;
	*ret_uses_fd = u->memory.fd;
	u->memory.fd = -EBADF; /* the mapping is enough */
	return 0;
}

void residents_take_back(struct cached_dataset *d, struct resident_uses *uses)
{
	if (!uses)
		return;
	LL_DELETE(d->residents.uses, uses);
	shared_memory_free(&uses->memory);
	free(uses);
}

static bool take_uses(struct cache *c, struct cached_dataset *d, const struct resident_uses *u)
{
	resident_use *uses = (resident_use *)u->memory.data;
	const uses_word *words = (const uses_word *)u->memory.data;
	bool any = false;

	for (uint64_t i = 0; i < d->info.n_chunks; i++) {
		if (i % sizeof(*words) == 0 &&
		    !atomic_load_explicit(&words[i / sizeof(*words)], memory_order_relaxed)) {
			i += sizeof(*words) - 1;
			continue;
		}
		if (!atomic_load_explicit(&uses[i], memory_order_relaxed))
			continue;
		atomic_store_explicit(&uses[i], 0, memory_order_relaxed);
		d->chunks[i].last_use = c->clock;
		any = true;
	}
	return any;
}

void residents_note_uses(struct cache *c)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns < c->uses_ns + LOOK_NS)
		return;
	c->uses_ns = now_ns;
	c->clock++;
	for (struct cached_dataset *d = c->datasets; d; d = d->next)
		for (const struct resident_uses *u = d->residents.uses; u; u = u->next)
			if (take_uses(c, d, u))
				d->residents.used_ns = now_ns;
}

bool residents_are_used(const struct cached_dataset *d)
{
	return d->residents.used_ns && clock_monotonic_ns() < d->residents.used_ns + USED_NS;
}
