/* SPDX-License-Identifier: Apache-2.0 */
/* The cache after a restart: datasets and chunks that were left in the service manager's store (carry.h) are
 * in it again, as idle ones. */
#include "cache.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/log.h"
#include "lib/units.h"

static struct cached_dataset *find_dataset(const struct cache *c, uint32_t slot)
{
	struct cached_dataset *d = c->datasets;

	while (d && d->carried.slot != slot)
		d = d->next;
	return d;
}

/* The copy was verified before it was stored, and is sealed. The checks here are against something else in
 * its place. */
static int open_copy(struct proof *proof, int fd, struct cached_dataset **ret, struct error *err)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != proof->snapshot_bytes || st.st_uid != geteuid() ||
	    !shared_memory_is_sealed(fd)) {
		close(fd);
		return error_set(err, -EPERM, "%s: is no copy of a snapshot that this user made",
				 proof->path);
	}
	r = proof_verify(proof, fd, err);
	if (r < 0) {
		close(fd);
		return r;
	}
	return cached_new(proof, fd, ret, err);
}

static int restore_dataset(struct cache *c, uint32_t slot, const struct carry_dataset *e, int fd,
			   struct error *err)
{
	struct proof proof = PROOF_INIT;
	struct cached_dataset *d;
	int r;

	if (!e->is_used || cache_find_dataset(c, &e->identity)) {
		close(fd);
		return error_set(err, -ESTALE, "a dataset that is not in the index");
	}
	proof.identity = e->identity;
	proof.snapshot = e->original;
	proof.snapshot_bytes = e->copy_bytes;
	memcpy(proof.path, e->path, sizeof(proof.path));
	r = open_copy(&proof, fd, &d, err);
	if (r < 0)
		return r;
	carry_adopt_dataset(c->carry, slot, d);
	/* Clients of the previous daemon may still have it. */
	d->copy.is_lent = true;
	d->copy.uid = (uint32_t)e->copy_uid;
	cache_add_dataset(c, d);
	return 0;
}

/* Damage is found when the chunk is wanted; this checks only what nothing else would find. */
static int restore_chunk(struct cache *c, uint32_t slot, const struct carry_chunk *e, int fd)
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
	s->carried = true;
	carry_adopt_chunk(slot, s);
	s->stamp = e->stamp;
	s->chunk = e->chunk;
	d->chunks[e->chunk].segment = s;
	d->chunks[e->chunk].state = CHUNK_CARRIED;
	return 0;
}

static void restore_datasets(struct cache *c)
{
	struct carry_dataset e;
	uint32_t slot = 0;
	int fd;

	while ((slot = carry_next_dataset(c->carry, slot, &e, &fd))) {
		struct error err = ERROR_INIT;

		if (restore_dataset(c, slot, &e, fd, &err) == 0)
			continue;
		log_warning("%s: not carried over the restart", err.text);
		carry_refuse(c->carry, slot);
	}
}

/* Returns how many were refused. A chunk that is not in the index was given up while the daemon died: not
 * counted. */
static uint32_t restore_chunks(struct cache *c)
{
	struct carry_chunk e;
	uint32_t slot = 0, n_refused = 0;
	int fd;

	while ((slot = carry_next_chunk(c->carry, slot, &e, &fd))) {
		int r = restore_chunk(c, slot, &e, fd);

		if (r == 0)
			continue;
		n_refused += r != -ESTALE;
		close(fd);
		carry_refuse(c->carry, slot);
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
		log_warning("%u chunk%s not used: what the service manager kept is not as dieseld made it",
			    n_refused, units_plural(n_refused));
	if (c->segments.n)
		log_info("%u chunk%s, %s, carried over the restart", c->segments.n,
			 units_plural(c->segments.n),
			 units_format_bytes(bytes, sizeof(bytes), c->segment_bytes));
	cache_fit(c);
}
