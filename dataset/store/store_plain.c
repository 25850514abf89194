/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/store.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/chunk_id.h"
#include "dataset/checksum/checksum.h"
#include "dataset/external.h"
#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"

/* Number of chunks remembered. Parallel readers read one chunk each: dieselctl fetch has as many threads. */
#define N_KNOWN 32
/* Bytes of the first read, which cover most heads with their tables. */
#define FIRST_READ_BYTES (64u << 10)
/* Maximum bytes of blocks that are read with one call. */
#define RUN_BYTES ((uint64_t)4 << 20)

/* The known layout of a chunk, without its content. */
struct known {
	struct chunk_id id;
	uint64_t file_bytes; /* length of the plain form */
	bool is_compressed;
	struct external *source; /* of an external chunk; else NULL */
	bool is_as_long;         /* the file has the length in its header; otherwise blocks are missing */
	struct chunk_blocks blocks;
	unsigned n_users;
	bool is_listed;
	uint64_t used;
	unsigned char table[];
};

struct store_plain {
	struct store store;
	struct store *stored;
	chunk_decode *decode;
	pthread_mutex_t lock;
	struct known *known[N_KNOWN];
	uint64_t n_uses;
};

static struct store_plain *plain_of(const struct store *s)
{
	return container_of(s, struct store_plain, store);
}

static int damaged(const struct store_plain *p, const struct chunk_id *id, const char *what,
		   struct error *err)
{
	char name[STORE_NAME_MAX];

	return error_set(err, -EBADMSG, "%s %s; restore the file, or run `dieselctl verify --repair`",
			 store_describe(p->stored, id, name), what);
}

static void known_free(struct known *k)
{
	if (k)
		free(k->source);
	free(k);
}

static void known_freep(struct known **k)
{
	known_free(*k);
}

/* The lock is held. */
static void let_go(struct known *k)
{
	if (--k->n_users == 0 && !k->is_listed)
		known_free(k);
}

static void release(struct store_plain *p, struct known *k)
{
	pthread_mutex_lock(&p->lock);
	let_go(k);
	pthread_mutex_unlock(&p->lock);
}

/* The lock is held. */
static struct known *find(struct store_plain *p, const struct chunk_id *id)
{
	for (size_t i = 0; i < N_KNOWN; i++) {
		struct known *k = p->known[i];

		if (!k || chunk_id_compare(&k->id, id) != 0)
			continue;
		k->n_users++;
		k->used = ++p->n_uses;
		return k;
	}
	return NULL;
}

/* Remembers a layout, in place of the least recently used one. */
static void note(struct store_plain *p, struct known *k)
{
	size_t at = 0;

	pthread_mutex_lock(&p->lock);
	for (size_t i = 1; i < N_KNOWN && p->known[at]; i++)
		if (!p->known[i] || p->known[i]->used < p->known[at]->used)
			at = i;
	if (p->known[at]) {
		p->known[at]->is_listed = false;
		p->known[at]->n_users++;
		let_go(p->known[at]);
	}
	k->is_listed = true;
	k->used = ++p->n_uses;
	p->known[at] = k;
	pthread_mutex_unlock(&p->lock);
}

/* Reads the table of blocks, which may lie after the part of the head that was read. */
static int read_table(struct store_plain *p, const struct chunk_header *h, const unsigned char *head,
		      size_t head_bytes, struct known *k, struct error *err)
{
	size_t bytes = k->blocks.n * sizeof(uint32_t);
	int r = 0;

	if (h->blocks_offset + bytes <= head_bytes)
		memcpy(k->table, head + h->blocks_offset, bytes);
	else
		r = store_read(p->stored, &k->id, h->blocks_offset, k->table, bytes, err);
	k->blocks.stored = k->table;
	if (r == 0 && chunk_blocks_check(h, &k->blocks) < 0)
		r = damaged(p, &k->id, "has a damaged table of blocks", err);
	return r;
}

static bool has_flag(const struct chunk_header *h, size_t bytes, uint32_t flag)
{
	return bytes >= sizeof(*h) && memcmp(h->magic, CHUNK_MAGIC, sizeof(h->magic)) == 0 &&
	       h->version == CHUNK_VERSION && (h->flags & flag);
}

/* Reads the head of an external chunk, which is the whole file, and its source. */
static int read_source(struct store_plain *p, const struct chunk_header *h, uint64_t file_bytes,
		       struct known *k, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct external_maker maker;
	int r;

	if (h->payload_offset > CHUNK_MAX_BYTES || file_bytes != h->payload_offset)
		return damaged(p, &k->id, "has a damaged header", err);
	head = malloc(file_bytes);
	k->source = malloc(sizeof(*k->source));
	if (!head || !k->source)
		return error_errno(err, -ENOMEM, "a chunk's head");
	r = store_read_made(p->stored, &k->id, head, file_bytes, &maker, err);
	if (r < 0)
		return r;
	/* Its samples have no checksums, so the head must be right. It may change between two reads. */
	if (memcmp(head, h, sizeof(*h)) != 0 || chunk_id_compare(&h->id, &k->id) != 0 ||
	    checksum_xxh3_gap(head, file_bytes, offsetof(struct chunk_header, head_xxh3)) != h->head_xxh3)
		return damaged(p, &k->id, "has a damaged head", err);
	k->blocks.payload_offset = h->payload_offset;
	k->file_bytes = h->file_bytes;
	if (external_in_head(head, k->source) < 0)
		return damaged(p, &k->id, "has a damaged reference to its source", err);
	k->source->maker = maker;
	return 0;
}

/* Reads the layout of a chunk. If its head does not show that it is compressed or external, the file is the
 * plain form. */
static int look(struct store_plain *p, const struct chunk_id *id, struct known **ret, struct error *err)
{
	_cleanup_(freep) unsigned char *head = NULL;
	_cleanup_(known_freep) struct known *k = NULL;
	struct chunk_blocks blocks = {0};
	struct chunk_header h;
	uint64_t bytes;
	size_t n;
	int r = store_size(p->stored, id, &bytes, err);

	if (r < 0)
		return r;
	n = bytes < FIRST_READ_BYTES ? (size_t)bytes : FIRST_READ_BYTES;
	head = malloc(n ? n : 1);
	if (!head)
		return error_errno(err, -ENOMEM, "a chunk's head");
	r = store_read(p->stored, id, 0, head, n, err);
	if (r < 0)
		return r;
	memcpy(&h, head, n < sizeof(h) ? n : sizeof(h));
	if (has_flag(&h, n, CHUNK_FLAG_COMPRESSED)) {
		if (chunk_blocks_of(&h, &blocks) < 0)
			return damaged(p, id, "has a damaged header", err);
	}
	k = calloc(1, sizeof(*k) + blocks.n * sizeof(uint32_t));
	if (!k)
		return error_errno(err, -ENOMEM, "a chunk's head");
	k->id = *id;
	k->blocks = blocks;
	k->is_compressed = blocks.n > 0;
	k->file_bytes = k->is_compressed ? h.file_bytes : bytes;
	k->is_as_long = !k->is_compressed || h.stored_bytes == bytes;
	k->n_users = 1;
	if (k->is_compressed)
		r = read_table(p, &h, head, n, k, err);
	else if (has_flag(&h, n, CHUNK_FLAG_EXTERNAL))
		r = read_source(p, &h, bytes, k, err);
	if (r == 0)
		*ret = steal_pointer(k);
	return r;
}

static int get(struct store_plain *p, const struct chunk_id *id, struct known **ret, struct error *err)
{
	int r;

	pthread_mutex_lock(&p->lock);
	*ret = find(p, id);
	pthread_mutex_unlock(&p->lock);
	if (*ret)
		return 0;
	r = look(p, id, ret, err);
	if (r == 0)
		note(p, *ret);
	return r;
}

/* The requested part of the payload, and its destination. */
struct plain_want {
	uint64_t begin, end; /* range of the payload */
	unsigned char *to;
};

static int decode_error(const struct store_plain *p, const struct known *k, uint32_t block, int r,
			struct error *err)
{
	char name[STORE_NAME_MAX];

	store_describe(p->stored, &k->id, name);
	if (r == -ENOSYS)
		return error_set(err, r, "%s is compressed, and libzstd.so.1 is missing: install libzstd",
				 name);
	if (r != -EBADMSG)
		return error_errno(err, r, "%s: cannot decompress it", name);
	return error_set(
	    err, r, "%s: the block at byte %llu is damaged (cannot be decompressed)", name,
	    (unsigned long long)(k->blocks.payload_offset + (uint64_t)block * k->blocks.block_bytes));
}

/* Decodes one block to its destination, through a buffer if only a part of it is wanted. */
static int put_block(const struct store_plain *p, const struct known *k, uint32_t i, const void *stored,
		     const struct plain_want *w, void *buffer, struct error *err)
{
	uint64_t at = (uint64_t)i * k->blocks.block_bytes, end = at + chunk_block_plain(&k->blocks, i);
	bool is_whole = at >= w->begin && end <= w->end;
	uint64_t from = at > w->begin ? at : w->begin, to = end < w->end ? end : w->end;
	int r =
	    chunk_block_decode(&k->blocks, i, stored, is_whole ? w->to + (at - w->begin) : buffer, p->decode);

	if (r < 0)
		return decode_error(p, k, i, r, err);
	if (!is_whole)
		memcpy(w->to + (from - w->begin), (const unsigned char *)buffer + (from - at), to - from);
	return 0;
}

/* Reads and decodes the blocks from *next on that one read covers. */
static int read_run(const struct store_plain *p, const struct known *k, const struct plain_want *w,
		    uint32_t *next, uint64_t *offset, struct error *err)
{
	_cleanup_(freep) unsigned char *stored = NULL, *buffer = NULL;
	uint32_t end = *next;
	uint64_t bytes = 0, at = 0;
	int r;

	while (end < k->blocks.n && (uint64_t)end * k->blocks.block_bytes < w->end &&
	       (bytes == 0 || bytes + chunk_block_stored(&k->blocks, end) <= RUN_BYTES))
		bytes += chunk_block_stored(&k->blocks, end++);
	stored = malloc(bytes);
	buffer = malloc(k->blocks.block_bytes);
	if (!stored || !buffer)
		return error_errno(err, -ENOMEM, "blocks of a chunk");
	r = store_read(p->stored, &k->id, *offset, stored, bytes, err);
	for (uint32_t i = *next; i < end && r == 0; i++) {
		r = put_block(p, k, i, stored + at, w, buffer, err);
		at += chunk_block_stored(&k->blocks, i);
	}
	*next = end;
	*offset += bytes;
	return r;
}

static int read_payload(const struct store_plain *p, const struct known *k, const struct plain_want *w,
			struct error *err)
{
	uint64_t offset = k->blocks.payload_offset;
	uint32_t next = (uint32_t)(w->begin / k->blocks.block_bytes);
	int r = 0;

	for (uint32_t i = 0; i < next; i++)
		offset += chunk_block_stored(&k->blocks, i);
	while (r == 0 && next < k->blocks.n && (uint64_t)next * k->blocks.block_bytes < w->end)
		r = read_run(p, k, w, &next, &offset, err);
	return r;
}

static int read_external(const struct known *k, const struct plain_want *w, struct error *err)
{
	return external_read(k->source, w->begin, w->to, (size_t)(w->end - w->begin), err);
}

/* Reads a chunk that is compressed or external: its head from the file, and then its payload. */
static int read_formed(const struct store_plain *p, const struct known *k, uint64_t offset, void *buffer,
		       size_t bytes, struct error *err)
{
	uint64_t head = k->blocks.payload_offset;
	size_t n = offset < head ? (head - offset < bytes ? (size_t)(head - offset) : bytes) : 0;
	struct plain_want want;
	char name[STORE_NAME_MAX];
	int r = 0;

	if (offset > k->file_bytes || bytes > k->file_bytes - offset)
		return error_set(err, -EBADMSG,
				 "%s is truncated: it ends at byte %llu, but must have %llu bytes",
				 store_describe(p->stored, &k->id, name), (unsigned long long)k->file_bytes,
				 (unsigned long long)(offset + bytes));
	if (n > 0)
		r = store_read(p->stored, &k->id, offset, buffer, n, err);
	if (r < 0 || n == bytes)
		return r;
	want.begin = offset + n - head;
	want.end = offset + bytes - head;
	want.to = (unsigned char *)buffer + n;
	return k->source ? read_external(k, &want, err) : read_payload(p, k, &want, err);
}

static int plain_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		      struct error *err)
{
	struct store_plain *p = plain_of(s);
	struct known *k;
	int r = get(p, id, &k, err);

	if (r < 0)
		return r;
	r = k->is_compressed || k->source ? read_formed(p, k, offset, buffer, bytes, err)
					  : store_read(p->stored, id, offset, buffer, bytes, err);
	release(p, k);
	return r;
}

static int plain_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	struct store_plain *p = plain_of(s);
	struct known *k;
	int r = get(p, id, &k, err);

	if (r < 0)
		return r;
	if (!k->is_as_long)
		r = damaged(p, id, "is truncated, or too long: its length is not the one in its header", err);
	else
		*ret_bytes = k->file_bytes;
	if (r == 0 && k->source)
		r = external_check(k->source, err);
	release(p, k);
	return r;
}

static void plain_describe(const struct store *s, const struct chunk_id *id, char *text, size_t size)
{
	const struct store *stored = plain_of(s)->stored;

	stored->ops->describe(stored, id, text, size);
}

static int plain_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		     struct error *err)
{
	return store_put(plain_of(s)->stored, id, parts, n_parts, err);
}

/* Forgets the layout of a chunk, whose file may have another form now. */
static void forget(struct store_plain *p, const struct chunk_id *id)
{
	pthread_mutex_lock(&p->lock);
	for (size_t i = 0; i < N_KNOWN; i++) {
		struct known *k = p->known[i];

		if (!k || chunk_id_compare(&k->id, id) != 0)
			continue;
		p->known[i] = NULL;
		k->is_listed = false;
		k->n_users++;
		let_go(k);
	}
	pthread_mutex_unlock(&p->lock);
}

static int plain_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
			 struct error *err)
{
	forget(plain_of(s), id);
	return store_replace(plain_of(s)->stored, id, parts, n_parts, err);
}

static int plain_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
		      struct error *err)
{
	return store_list(plain_of(s)->stored, after, ret, ret_n, err);
}

static int plain_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	forget(plain_of(s), id);
	return store_remove(plain_of(s)->stored, id, err);
}

static int plain_sweep(struct store *s, struct error *err)
{
	return store_sweep(plain_of(s)->stored, err);
}

static void plain_free(struct store *s)
{
	struct store_plain *p = plain_of(s);

	for (size_t i = 0; i < N_KNOWN; i++)
		known_free(p->known[i]);
	store_free(p->stored);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

static const struct store_ops plain_ops = {
    .read = plain_read,
    .describe = plain_describe,
    .free = plain_free,
    .put = plain_put,
    .replace = plain_replace,
    .size = plain_size,
    .list = plain_list,
    .remove = plain_remove,
    .sweep = plain_sweep,
};

int store_plain_open(struct store *stored, chunk_decode *decode, struct store **ret, struct error *err)
{
	struct store_plain *p = calloc(1, sizeof(*p));

	if (!p)
		return error_errno(err, -ENOMEM, "chunks");
	p->store.ops = &plain_ops;
	p->stored = stored;
	p->decode = decode;
	pthread_mutex_init(&p->lock, NULL);
	*ret = &p->store;
	return 0;
}

int store_of_snapshot(struct store *stored, const struct snapshot_info *info, chunk_decode *decode,
		      struct store **ret, struct error *err)
{
	if (snapshot_needs_plain_store(info))
		return store_plain_open(stored, decode, ret, err);
	*ret = stored;
	return 0;
}
