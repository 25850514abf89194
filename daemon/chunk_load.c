/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk's way into memory: open, large reads in flight together, verification by a worker; one repeat
 * when anything was wrong, then quarantine.
 */
#include "cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/chunk.h"
#include "lib/clock.h"
#include "lib/log.h"

/* Large enough for full bandwidth, small enough that a few of one chunk run side by side. */
#define PIECE_BYTES (2u << 20)
#define MAX_PIECES  64
#define RETRY_NS    (10 * NS_PER_S) /* a read that failed is not damage: storage may come back */

struct load;

struct piece {
	struct io_op op;
	struct load *load;
};

struct load {
	struct cache *cache;
	struct served_dataset *dataset;
	uint64_t chunk;
	struct snapshot_chunk meta;
	struct segment *segment;
	struct job *job;
	uint64_t begin_ns;
	bool repeated, buffered;
	int fd;
	uint32_t n_pending;
	int result;
	struct error error;
	struct pool_job verify;
	struct piece open;
	struct piece pieces[MAX_PIECES];
	char name[CHUNK_ID_TEXT + 8];
	char origin[4096];
};

static void load_open(struct load *l);

static void load_finish(struct load *l)
{
	struct cache *c = l->cache;
	struct served_dataset *d = l->dataset;
	struct served_chunk *k = &d->chunks[l->chunk];

	if (l->fd >= 0)
		close(l->fd);
	if (l->result == 0) {
		cache_note_ready(c, d, l->chunk);
	} else {
		bool damage = l->result == -EBADMSG || l->result == -EPROTONOSUPPORT || l->result == -ENOENT;

		k->state = CHUNK_BAD;
		k->retry_ns = damage ? 0 : clock_monotonic_ns() + RETRY_NS;
		free(k->error);
		k->error = strdup(l->error.text);
		d->n_bad++;
		c->counters.damaged++;
		cache_drop_segment(c, l->segment);
		log_error("%s (not served)", l->error.text);
	}
	c->n_loading--;
	job_unref(l->job);
	free(l);
	c->on_change(c->user);
}

/* Anything wrong is read once more: a flipped bit on the way is cured by that, damage is not. */
static void load_fail(struct load *l)
{
	if (l->repeated) {
		load_finish(l);
		return;
	}
	log_warning("%s; reading it again", l->error.text);
	l->repeated = true;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -EBADF;
	l->dataset->chunks[l->chunk].state = CHUNK_READING;
	load_open(l);
}

static int verify_samples(struct load *l, const struct chunk_view *view)
{
	for (uint64_t i = 0; i < l->meta.n_samples; i++) {
		struct snapshot_sample s;
		const struct chunk_record *record;
		unsigned long long number = l->meta.first_sample + i;
		int r = snapshot_sample_get(l->dataset->snapshot, number, &s);

		if (r < 0 || s.record >= view->header->n_records)
			return error_set(&l->error, -EBADMSG, "%s: has no record for sample %llu", l->origin,
					 number);
		record = &view->records[s.record];
		if (record->offset != s.offset || record->stored_bytes != s.stored_bytes ||
		    record->bytes != s.bytes || record->xxh3 != s.xxh3)
			return error_set(&l->error, -EBADMSG, "%s: sample %.*s differs from the snapshot",
					 l->origin, (int)s.path_length, s.path);
		r = chunk_verify_record(view, s.record, l->segment->memory.data + s.offset, l->origin,
					&l->error);
		if (r < 0)
			return r;
	}
	return 0;
}

static void verify_work(struct pool_job *job)
{
	struct load *l = (struct load *)((char *)job - offsetof(struct load, verify));
	struct chunk_view view;
	uint64_t needed;
	int r = chunk_parse_head(l->segment->memory.data, l->meta.file_bytes, l->meta.file_bytes, l->origin,
				 &view, &needed, &l->error);

	if (r == -EAGAIN)
		r = error_set(&l->error, -EBADMSG, "%s: its head is longer than the file", l->origin);
	if (r == 0 && (memcmp(&view.header->id, &l->meta.id, sizeof(l->meta.id)) != 0 ||
		       view.header->head_xxh3 != l->meta.head_xxh3))
		r = error_set(&l->error, -EBADMSG,
			      "%s: is not the chunk that the snapshot describes: run dieselctl verify",
			      l->origin);
	l->result = r < 0 ? r : verify_samples(l, &view);
}

static void verify_done(struct pool_job *job)
{
	struct load *l = (struct load *)((char *)job - offsetof(struct load, verify));

	if (l->result < 0)
		load_fail(l);
	else
		load_finish(l);
}

static void load_verify(struct load *l)
{
	l->dataset->chunks[l->chunk].state = CHUNK_VERIFYING;
	l->verify.work = verify_work;
	l->verify.done = verify_done;
	pool_submit(l->cache->pool, &l->job->lane, &l->verify);
	/* The client's wait is for CPU work from here on. */
	l->cache->on_change(l->cache->user);
}

static void on_piece(struct io_op *op)
{
	struct load *l = ((struct piece *)op)->load;

	if (op->result > 0 && (uint32_t)op->result < op->bytes && l->result == 0) {
		/* A short read: go on behind it. */
		op->buffer = (uint8_t *)op->buffer + op->result;
		op->offset += (uint32_t)op->result;
		op->bytes -= (uint32_t)op->result;
		io_submit(l->cache->io, op);
		return;
	}
	if (op->result == 0 && l->result == 0)
		l->result = error_set(&l->error, -EBADMSG, "%s: truncated at %llu bytes", l->origin,
				      (unsigned long long)op->offset);
	if (op->result < 0 && l->result == 0)
		l->result = error_errno(&l->error, op->result, "%s: cannot read at %llu", l->origin,
					(unsigned long long)op->offset);
	if (--l->n_pending > 0)
		return;
	job_read_end(l->job, l->begin_ns, clock_monotonic_ns(), l->meta.file_bytes);
	if (l->result < 0)
		load_fail(l);
	else
		load_verify(l);
}

static void load_read(struct load *l)
{
	uint64_t piece = PIECE_BYTES;
	uint32_t n;

	while ((l->meta.file_bytes + piece - 1) / piece > MAX_PIECES)
		piece *= 2;
	n = (uint32_t)((l->meta.file_bytes + piece - 1) / piece);
	l->n_pending = n;
	l->begin_ns = clock_monotonic_ns();
	job_read_begin(l->job, l->begin_ns);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t offset = i * piece, left = l->meta.file_bytes - offset;

		l->pieces[i].load = l;
		l->pieces[i].op = (struct io_op){.kind = IO_READ,
						 .fd = l->fd,
						 .buffer = l->segment->memory.data + offset,
						 .bytes = (uint32_t)(left < piece ? left : piece),
						 .offset = offset,
						 .done = on_piece};
		io_submit(l->cache->io, &l->pieces[i].op);
	}
	l->cache->counters.read_bytes += l->meta.file_bytes;
}

static int check_opened(struct load *l)
{
	struct stat st;

	if (fstat(l->fd, &st) < 0)
		return error_errno(&l->error, -errno, "%s: cannot look at it", l->origin);
	if (!S_ISREG(st.st_mode))
		return error_set(&l->error, -EBADMSG, "%s: is not a regular file", l->origin);
	if ((uint64_t)st.st_size != l->meta.file_bytes)
		return error_set(&l->error, -EBADMSG,
				 "%s: has %lld bytes instead of %llu: truncated or replaced", l->origin,
				 (long long)st.st_size, (unsigned long long)l->meta.file_bytes);
	return 0;
}

static void on_open(struct io_op *op)
{
	struct load *l = ((struct piece *)op)->load;

	/* Some file systems know no O_DIRECT: their page cache is used then. */
	if (op->result == -EINVAL && !l->buffered) {
		l->buffered = true;
		l->cache->counters.buffered++;
		load_open(l);
		return;
	}
	if (op->result < 0) {
		l->result = op->result;
		error_errno(&l->error, op->result, "%s: cannot open the chunk", l->origin);
	} else {
		l->fd = op->result;
		l->result = check_opened(l);
	}
	if (l->result < 0)
		load_fail(l);
	else
		load_read(l);
}

static void load_open(struct load *l)
{
	l->result = 0;
	l->cache->counters.reads += !l->buffered;
	l->open.load = l;
	l->open.op = (struct io_op){
	    .kind = IO_OPEN,
	    .fd = l->dataset->chunks_fd,
	    .path = l->name,
	    /* O_NONBLOCK: a pipe in the chunk's place must not hold us up. */
	    .how = {.flags = (uint64_t)(O_RDONLY | O_CLOEXEC | O_NONBLOCK | (l->buffered ? 0 : O_DIRECT)),
		    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS},
	    .done = on_open};
	io_submit(l->cache->io, &l->open.op);
}

int cache_load(struct cache *c, struct served_dataset *d, uint64_t chunk, uint32_t distance, struct job *job)
{
	struct served_chunk *k = &d->chunks[chunk];
	struct load *l;
	char id[CHUNK_ID_TEXT];
	int r;

	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	r = snapshot_chunk_get(d->snapshot, chunk, &l->meta);
	if (r < 0 || l->meta.file_bytes > k->bytes) { /* a verified snapshot has no such entry */
		free(l);
		return r < 0 ? r : -EBADMSG;
	}
	l->segment = cache_take_segment(c, d, chunk, distance, &r);
	if (!l->segment) {
		free(l);
		return r;
	}
	l->cache = c;
	l->job = job_ref(job);
	l->dataset = d;
	l->chunk = chunk;
	l->fd = -EBADF;
	chunk_id_format(&l->meta.id, id);
	snprintf(l->name, sizeof(l->name), "%s.chunk", id);
	snprintf(l->origin, sizeof(l->origin), "%s/chunks/%s", d->path, l->name);
	if (k->state == CHUNK_BAD)
		d->n_bad--;
	k->state = CHUNK_READING;
	k->segment = l->segment;
	c->n_loading++;
	load_open(l);
	return 0;
}
