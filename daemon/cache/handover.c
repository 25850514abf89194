/* SPDX-License-Identifier: Apache-2.0 */
#include "handover.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache.h"
#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/units.h"

#define INDEX_NAME "index"
#define FORMAT     1
#define RETRY_MS   100
#define MAX_PAUSES 2000 /* maximum number of pauses, of 1 ms each, together */
/* Minimum number of chunks: a smaller store is not worth its index. */
#define MIN_CHUNKS   4
#define MAX_DATASETS 64
/* Limit so that all names, of 6 letters and a colon, fit in one environment string of 128 KiB. */
#define MAX_CHUNKS 16384

struct handover_dataset {
	uint64_t is_used;
	struct proof_identity identity;
	struct access_stamp original; /* stamp of its snapshot file */
	uint64_t copy_bytes;
	uint64_t copy_uid; /* the latest user who got the copy */
	char path[PATH_MAX];
};

struct handover_chunk {
	uint32_t is_valid;
	uint32_t dataset; /* the dataset's number in the index */
	uint64_t chunk;
	uint64_t bytes; /* size of its memory */
	struct access_stamp stamp;
};

struct header {
	char magic[8];
	uint32_t format, dataset_bytes, chunk_bytes, n_datasets, n_chunks, reserved;
};

enum slot_state {
	SLOT_FREE,
	SLOT_ADDS, /* will be added when the manager accepts it */
	SLOT_STORED,
	SLOT_REMOVES,
	SLOT_CAME_BACK, /* stored, but not taken over yet */
};

struct handover_slot {
	enum slot_state state;
	int fd; /* descriptor: borrowed in ADDS, owned in CAME_BACK */
};

/* Slots for datasets come first, then for chunks, and last for the index itself. Outside this file they are
 * numbered from 1. */
struct handover {
	struct shared_memory index;
	struct header *header;
	struct handover_dataset *datasets;
	struct handover_chunk *chunks;
	struct cached_dataset **served; /* indexed by dataset slot */
	struct quota quota;
	struct handover_slot *slots;
	uint32_t n_slots, next_chunk;
	uint32_t n_due; /* number of slots that wait to be added or removed */
	bool broken;
	uv_timer_t retry;
};

static void name_of(const struct handover *c, uint32_t i, char name[FD_STORE_NAME_BYTES])
{
	if (i == c->n_slots - 1)
		snprintf(name, FD_STORE_NAME_BYTES, INDEX_NAME);
	else if (i < c->header->n_datasets)
		snprintf(name, FD_STORE_NAME_BYTES, "d%u", i);
	else
		snprintf(name, FD_STORE_NAME_BYTES, "c%u", i - c->header->n_datasets);
}

/* Returns the slot of that name; negative: none. */
static long slot_named(const struct handover *c, const char *name)
{
	uint32_t n = name[0] == 'd' ? c->header->n_datasets : c->header->n_chunks;
	int64_t i;

	if (strcmp(name, INDEX_NAME) == 0)
		return c->n_slots - 1;
	if ((name[0] != 'd' && name[0] != 'c') || units_parse_integer(name + 1, 0, (int64_t)n - 1, &i) < 0)
		return -1;
	return (long)(name[0] == 'd' ? i : c->header->n_datasets + i);
}

static bool is_due(const struct handover_slot *s)
{
	return s->state == SLOT_ADDS || s->state == SLOT_REMOVES;
}

static void give_up(struct handover *c, int why)
{
	log_warning("cannot store more chunks with the service manager (%s): cached chunks are lost when "
		    "dieseld ends",
		    strerror(-why));
	c->broken = true;
	c->n_due = 0;
}

/* Adds the slot to the manager's store, or removes it. Returns 0 or -EAGAIN: the manager does not accept it
 * now. */
static int slot_send(struct handover *c, uint32_t i)
{
	struct handover_slot *s = &c->slots[i];
	char name[FD_STORE_NAME_BYTES];
	int r;

	name_of(c, i, name);
	r = s->state == SLOT_ADDS ? fd_store_add(name, s->fd) : fd_store_remove(name);
	if (r < 0)
		return r;
	s->state = s->state == SLOT_ADDS ? SLOT_STORED : SLOT_FREE;
	s->fd = -EBADF;
	c->n_due--;
	return 0;
}

static void on_retry(uv_timer_t *timer)
{
	struct handover *c = timer->data;

	for (uint32_t i = 0; i < c->n_slots && c->n_due > 0; i++) {
		int r = is_due(&c->slots[i]) ? slot_send(c, i) : 0;

		if (r == -EAGAIN)
			return;
		if (r < 0)
			give_up(c, r);
	}
	if (c->n_due == 0)
		uv_timer_stop(timer);
}

static void slot_begin(struct handover *c, uint32_t i, enum slot_state state, int fd)
{
	int r;

	if (c->broken)
		return;
	c->slots[i] = (struct handover_slot){.state = state, .fd = fd};
	c->n_due++;
	r = slot_send(c, i);
	if (r == -EAGAIN && !uv_is_active((uv_handle_t *)&c->retry))
		uv_timer_start(&c->retry, on_retry, RETRY_MS, RETRY_MS);
	else if (r < 0 && r != -EAGAIN)
		give_up(c, r);
}

static void slot_end(struct handover *c, uint32_t i)
{
	struct handover_slot *s = &c->slots[i];

	if (s->state == SLOT_ADDS) {
		s->state = SLOT_FREE;
		c->n_due -= !c->broken;
	} else if (s->state == SLOT_STORED) {
		slot_begin(c, i, SLOT_REMOVES, -EBADF);
	}
}

/* Returns a free slot among the n from `first` on, counted from 0; the search begins at `start`. Returns n if
 * none is free. */
static uint32_t find_free(const struct handover *c, uint32_t first, uint32_t n, uint32_t start)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = (start + i) % n;

		if (c->slots[first + k].state == SLOT_FREE)
			return k;
	}
	return n;
}

static struct handover_chunk *chunk_at(struct handover *c, uint32_t slot)
{
	return &c->chunks[slot - 1 - c->header->n_datasets];
}

/* Returns true if the owner of this dataset may have one more dataset, or one more chunk, in the store. */
static bool has_share(const struct handover *c, const struct cached_dataset *d, bool chunk)
{
	uint32_t uid = d->identity.rights.uid;
	uint64_t n = 0, max = chunk ? c->header->n_chunks : c->header->n_datasets;

	for (uint32_t i = 0; i < c->header->n_datasets; i++) {
		const struct cached_dataset *o = c->served[i];

		if (o && o->identity.rights.uid == uid)
			n += chunk ? o->restored.n_chunks : 1;
	}
	return n < quota_share(&c->quota, uid, max);
}

static void adopt_dataset(struct handover *c, uint32_t slot, struct cached_dataset *d)
{
	d->restored.slot = slot;
	c->served[slot - 1] = d;
}

static void adopt_chunk(uint32_t slot, struct segment *s)
{
	s->handover_slot = slot;
	s->dataset->restored.n_chunks++;
}

static void put_dataset(struct handover *c, struct cached_dataset *d)
{
	uint32_t i = find_free(c, 0, c->header->n_datasets, 0);
	struct handover_dataset *e = &c->datasets[i];

	if (i == c->header->n_datasets || strlen(d->path) >= sizeof(e->path) || !has_share(c, d, false))
		return;
	*e = (struct handover_dataset){.identity = d->identity,
				       .original = d->copy.original,
				       .copy_bytes = d->copy.bytes,
				       .copy_uid = d->copy.uid};
	strcpy(e->path, d->path);
	__atomic_store_n(&e->is_used, 1, __ATOMIC_SEQ_CST);
	slot_begin(c, i, SLOT_ADDS, d->copy.fd);
	adopt_dataset(c, i + 1, d);
}

static void put_memory(struct handover *c, struct segment *s)
{
	uint32_t first = c->header->n_datasets, n = c->header->n_chunks;
	uint32_t i = find_free(c, first, n, c->next_chunk);

	if (i == n || !has_share(c, s->dataset, true))
		return;
	c->next_chunk = i + 1;
	slot_begin(c, first + i, SLOT_ADDS, s->memory.fd);
	adopt_chunk(first + i + 1, s);
}

void handover_put(struct handover *c, struct segment *s)
{
	struct cached_dataset *d = s->dataset;
	struct handover_chunk *e;

	if (!c || c->broken)
		return;
	if (!d->restored.slot)
		put_dataset(c, d);
	if (d->restored.slot && !s->handover_slot)
		put_memory(c, s);
	if (!d->restored.slot || !s->handover_slot)
		return;
	e = chunk_at(c, s->handover_slot);
	e->dataset = d->restored.slot - 1;
	e->chunk = s->chunk;
	e->bytes = s->memory.bytes;
	e->stamp = s->stamp;
	__atomic_store_n(&e->is_valid, 1, __ATOMIC_SEQ_CST);
}

void handover_forget(struct handover *c, const struct segment *s)
{
	if (c && s->handover_slot)
		__atomic_store_n(&chunk_at(c, s->handover_slot)->is_valid, 0, __ATOMIC_SEQ_CST);
}

void handover_drop(struct handover *c, struct segment *s)
{
	handover_forget(c, s);
	if (!c || !s->handover_slot)
		return;
	slot_end(c, s->handover_slot - 1);
	s->handover_slot = 0;
	s->dataset->restored.n_chunks--;
}

void handover_drop_dataset(struct handover *c, struct cached_dataset *d)
{
	if (!c || !d->restored.slot)
		return;
	__atomic_store_n(&c->datasets[d->restored.slot - 1].is_used, 0, __ATOMIC_SEQ_CST);
	c->served[d->restored.slot - 1] = NULL;
	slot_end(c, d->restored.slot - 1);
	d->restored.slot = 0;
}

void handover_note_user(struct handover *c, const struct cached_dataset *d)
{
	if (c && d->restored.slot)
		c->datasets[d->restored.slot - 1].copy_uid = d->copy.uid;
}

/* Empties the store if no index describes it. Called only at the start, when the daemon may wait a little for
 * the manager. */
static void remove_all(const struct fd_store_items *items)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	unsigned int n_chunks = 0;
	int n_pauses = 0;

	for (size_t i = 0; i < items->n; i++)
		n_chunks += items->items[i].name[0] == 'c';
	if (n_chunks)
		log_warning("%u chunk%s not restored after the restart: another version of dieseld stored "
			    "them, or FileDescriptorStoreMax= has changed",
			    n_chunks, units_plural(n_chunks));

	for (size_t i = 0; i < items->n; i++) {
		const char *name = items->items[i].name;

		while (name[0] && fd_store_remove(name) == -EAGAIN && n_pauses++ < MAX_PAUSES)
			nanosleep(&pause, NULL);
	}
}

static struct header header_for(uint32_t n)
{
	struct header h = {.magic = "DSLCARRY",
			   .format = FORMAT,
			   .dataset_bytes = sizeof(struct handover_dataset),
			   .chunk_bytes = sizeof(struct handover_chunk)};

	h.n_datasets = n / 4 < MAX_DATASETS ? n / 4 : MAX_DATASETS;
	n -= h.n_datasets + 1;
	h.n_chunks = n < MAX_CHUNKS ? n : MAX_CHUNKS;
	return h;
}

static uint64_t index_bytes(const struct header *h)
{
	return sizeof(*h) + h->n_datasets * (uint64_t)sizeof(struct handover_dataset) +
	       h->n_chunks * (uint64_t)sizeof(struct handover_chunk);
}

/* Takes over the returned index, if it has this layout. */
static bool take_index(struct handover *c, const struct header *h, struct fd_store_items *items)
{
	for (size_t i = 0; i < items->n; i++) {
		struct fd_store_item *item = &items->items[i];

		if (strcmp(item->name, INDEX_NAME) != 0 || item->fd < 0 ||
		    shared_memory_take(item->fd, index_bytes(h), &c->index) < 0)
			continue;
		item->fd = -EBADF;
		if (memcmp(c->index.data, h, sizeof(*h)) == 0)
			return true;
		shared_memory_free(&c->index);
	}
	return false;
}

static int make_index(struct handover *c, const struct header *h)
{
	int r = shared_memory_new("diesel-restored", index_bytes(h), SHARED_MAPPABLE, &c->index);

	if (r == 0)
		memcpy(c->index.data, h, sizeof(*h));
	return r;
}

/* Takes over the returned items. If the store has two items of one name, takes the first; removing the
 * name removes both. */
static void take_items(struct handover *c, struct fd_store_items *items)
{
	for (size_t i = 0; i < items->n; i++) {
		struct fd_store_item *item = &items->items[i];
		long slot = slot_named(c, item->name);

		if (item->fd < 0 || slot < 0 || slot == c->n_slots - 1 || c->slots[slot].state != SLOT_FREE)
			continue;
		c->slots[slot] = (struct handover_slot){.state = SLOT_CAME_BACK, .fd = steal_fd(&item->fd)};
	}
	/* Drops entries that were never stored, or no longer are. */
	for (uint32_t i = 0; i < c->n_slots - 1; i++) {
		if (c->slots[i].state == SLOT_CAME_BACK)
			continue;
		if (i < c->header->n_datasets)
			c->datasets[i].is_used = 0;
		else
			chunk_at(c, i + 1)->is_valid = 0;
	}
}

static int handover_init(struct handover *c, uint32_t max, struct fd_store_items *items)
{
	struct header h = header_for(max);
	bool came_back = take_index(c, &h, items);
	int r = came_back ? 0 : make_index(c, &h);

	if (r < 0)
		return r;
	c->header = (struct header *)c->index.data;
	c->datasets = (struct handover_dataset *)(c->header + 1);
	c->chunks = (struct handover_chunk *)(c->datasets + h.n_datasets);
	c->n_slots = h.n_datasets + h.n_chunks + 1;
	c->slots = calloc(c->n_slots, sizeof(*c->slots));
	c->served = calloc(h.n_datasets, sizeof(struct cached_dataset *));
	if (!c->slots || !c->served)
		return -ENOMEM;
	if (came_back) {
		c->slots[c->n_slots - 1].state = SLOT_STORED;
		take_items(c, items);
		return 0;
	}
	remove_all(items);
	slot_begin(c, c->n_slots - 1, SLOT_ADDS, c->index.fd);
	return 0;
}

int handover_new(uv_loop_t *loop, const struct quota *quota, struct fd_store_items *items,
		 struct handover **ret)
{
	uint32_t max = fd_store_max();
	struct handover *c;
	int r;

	if (max < 2 * MIN_CHUNKS) {
		*ret = NULL;
		return 0;
	}
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->index = SHARED_MEMORY_INIT;
	c->quota = *quota;
	uv_timer_init(loop, &c->retry);
	uv_unref((uv_handle_t *)&c->retry);
	c->retry.data = c;
	r = handover_init(c, max, items);
	if (r < 0)
		handover_free(c);
	else
		*ret = c;
	return r;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct handover *handover_free(struct handover *c)
{
	if (!c)
		return NULL;
	for (uint32_t i = 0; c->slots && i < c->n_slots; i++)
		if (c->slots[i].state == SLOT_CAME_BACK)
			closep(&c->slots[i].fd);
	free(c->slots);
	free(c->served);
	shared_memory_free(&c->index);
	uv_close((uv_handle_t *)&c->retry, on_closed);
	return NULL;
}

/* After a restart: puts the contents of the store into the cache again, as idle. */

/* Returns the next slot after `slot` and before `end` whose item the manager returned; 0: none. */
static uint32_t next_back(struct handover *c, uint32_t slot, uint32_t end, int *ret_fd)
{
	for (uint32_t i = slot; i < end; i++) {
		if (c->slots[i].state != SLOT_CAME_BACK)
			continue;
		c->slots[i].state = SLOT_STORED;
		*ret_fd = steal_fd(&c->slots[i].fd);
		return i + 1;
	}
	return 0;
}

static uint32_t next_dataset(struct handover *c, uint32_t slot, struct handover_dataset *ret, int *ret_fd)
{
	slot = next_back(c, slot, c->header->n_datasets, ret_fd);
	if (slot) {
		*ret = c->datasets[slot - 1];
		ret->path[sizeof(ret->path) - 1] = '\0';
	}
	return slot;
}

static uint32_t next_chunk(struct handover *c, uint32_t slot, struct handover_chunk *ret, int *ret_fd)
{
	slot = next_back(c, slot ? slot : c->header->n_datasets, c->n_slots - 1, ret_fd);
	if (slot)
		*ret = *chunk_at(c, slot);
	return slot;
}

static void refuse(struct handover *c, uint32_t slot)
{
	if (slot <= c->header->n_datasets)
		c->datasets[slot - 1].is_used = 0;
	else
		chunk_at(c, slot)->is_valid = 0;
	slot_end(c, slot - 1);
}

static struct cached_dataset *find_dataset(const struct cache *c, uint32_t slot)
{
	struct cached_dataset *d = c->datasets;

	while (d && d->restored.slot != slot)
		d = d->next;
	return d;
}

/* Opens a returned snapshot copy, which was verified before it was stored, and is sealed. The checks here
 * only detect another file in its place. */
static int open_copy(struct proof *proof, int fd, struct cached_dataset **ret, struct error *err)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != proof->snapshot_bytes || st.st_uid != geteuid() ||
	    !shared_memory_is_sealed(fd)) {
		close(fd);
		return error_set(
		    err, -EPERM,
		    "%s: the stored copy of the snapshot has another size or owner, or is not sealed",
		    proof->path);
	}
	r = proof_verify(proof, fd, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	return cached_new(proof, fd, ret, err);
}

static int restore_dataset(struct cache *c, uint32_t slot, const struct handover_dataset *e, int fd,
			   struct error *err)
{
	struct proof proof = PROOF_INIT;
	struct cached_dataset *d;
	int r;

	if (!e->is_used || cache_find_dataset(c, &e->identity)) {
		close(fd);
		return error_set(err, -ESTALE, "a stored dataset is missing from the index");
	}
	proof.identity = e->identity;
	proof.snapshot = e->original;
	proof.snapshot_bytes = e->copy_bytes;
	memcpy(proof.path, e->path, sizeof(proof.path));
	r = open_copy(&proof, fd, &d, err);
	if (r < 0)
		return r;
	adopt_dataset(c->handover, slot, d);
	/* Clients of the previous daemon may still have the copy. */
	d->copy.is_borrowed = true;
	d->copy.uid = (uint32_t)e->copy_uid;
	cache_add_dataset(c, d);
	return 0;
}

/* Adds a returned chunk. Damage is detected when the chunk is loaded; this checks only for faults that the
 * load would not detect. */
static int restore_chunk(struct cache *c, uint32_t slot, const struct handover_chunk *e, int fd)
{
	struct cached_dataset *d = e->is_valid ? find_dataset(c, e->dataset + 1) : NULL;
	struct shared_memory memory = {.fd = fd, .bytes = e->bytes};
	struct segment *s;
	int r;

	if (!d || e->chunk >= d->info.n_chunks || d->chunks[e->chunk].bytes != e->bytes ||
	    d->chunks[e->chunk].state != CHUNK_ABSENT)
		return -ESTALE;
	r = shared_memory_check(fd, e->bytes);
	if (r < 0)
		return r;
	if (c->segments.n >= c->segments.max)
		return -EMFILE;
	r = cache_add_segment(c, d, &memory, &s);
	if (r < 0)
		return r;
	s->restored = true;
	adopt_chunk(slot, s);
	s->stamp = e->stamp;
	s->chunk = e->chunk;
	d->chunks[e->chunk].segment = s;
	d->chunks[e->chunk].state = CHUNK_RESTORED;
	return 0;
}

static void restore_datasets(struct cache *c)
{
	struct handover_dataset e;
	uint32_t slot = 0;
	int fd;

	while ((slot = next_dataset(c->handover, slot, &e, &fd))) {
		struct error err = ERROR_INIT;

		if (restore_dataset(c, slot, &e, fd, &err) == 0)
			continue;
		log_warning("dataset not restored after the restart: %s", err.text);
		refuse(c->handover, slot);
	}
}

/* Adds the returned chunks. Returns how many were refused. A chunk that is not in the index was being evicted
 * when the daemon died, and is not counted. */
static uint32_t restore_chunks(struct cache *c)
{
	struct handover_chunk e;
	uint32_t slot = 0, n_refused = 0;
	int fd;

	while ((slot = next_chunk(c->handover, slot, &e, &fd))) {
		int r = restore_chunk(c, slot, &e, fd);

		if (r == 0)
			continue;
		n_refused += r != -ESTALE;
		close(fd);
		refuse(c->handover, slot);
	}
	return n_refused;
}

void cache_restore(struct cache *c)
{
	uint32_t n_refused;
	char bytes[16];

	restore_datasets(c);
	n_refused = restore_chunks(c);
	if (n_refused)
		log_warning("%u chunk%s not restored after the restart: the service manager returned other "
			    "data than dieseld stored",
			    n_refused, units_plural(n_refused));
	if (c->segments.n)
		log_info("%u chunk%s (%s) restored after the restart", c->segments.n,
			 units_plural(c->segments.n),
			 units_format_bytes(bytes, sizeof(bytes), c->segment_bytes));
	cache_fit(c);
}
