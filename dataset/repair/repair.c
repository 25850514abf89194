/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/repair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/backend.h"
#include "dataset/blocks.h"
#include "dataset/checksum/checksum.h"
#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/compress.h"
#include "dataset/meta.h"
#include "dataset/snapshot.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/text.h"
#include "lib/units.h"

/* No chunk that a pack makes is longer: it holds several samples, or one of the greatest length. */
#define REPAIR_MAX_BYTES ((uint64_t)CHUNK_SAMPLE_MAX_BYTES + CHUNK_MAX_BYTES)

/* A place that may have the lost parts of a damaged dataset: another copy of it, or the files that were
 * packed. */
struct repair_origin {
	const char *name; /* as given */
	struct place *place;
	struct store *store; /* NULL: a tree of files */
	int source_fd;       /* folder of the tree of files */
};

/* A chunk that verify found damaged or missing, and its known description. */
struct broken {
	struct chunk_id id;
	bool is_external; /* cannot be repaired */
	bool has_meta, has_head, has_sha256;
	struct meta_chunk meta;
	uint64_t head_xxh3;
	struct digest sha256;
};

struct repair {
	const struct repair_options *options;
	struct repair_origin *origins; /* origins[0] is the dataset itself */
	size_t n_origins;
	struct meta *meta;         /* NULL: damaged */
	struct snapshot *snapshot; /* NULL: damaged */
	struct buffer broken;      /* struct broken, ids ascending */
	bool snapshot_damaged, metadata_damaged;
	struct repair_result result;
};

/* A chunk as it was packed, put together from parts found anywhere. */
struct repair_image {
	unsigned char *data; /* the chunk's plain form */
	uint64_t bytes;
	unsigned char *file; /* the chunk's file if it is compressed; else NULL */
	uint64_t file_bytes;
	struct chunk_view view; /* of data */
	uint32_t n_samples;     /* number of samples that came from other places than the dataset itself */
	const char *head;       /* text for the origin of the head; NULL: the file itself */
	uint32_t n_lost;        /* number of samples found nowhere; passed to options->lost */
	struct buffer names;    /* names of the origins that were used: const char * */
};

static void repair_origin_close(struct repair_origin *o)
{
	store_free(o->store);
	backend_close(o->place);
	closep(&o->source_fd);
}

/* Links are followed, as when the source was packed. */
static int open_file(const struct repair_origin *o, const char *path, size_t path_length, struct stat *ret_st,
		     int *ret_fd)
{
	_cleanup_(freep) char *name = strndup(path, path_length);
	_cleanup_(closep) int fd = -EBADF;

	if (!name)
		return -ENOMEM;
	fd = openat(o->source_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, ret_st) < 0)
		return -errno;
	if (!S_ISREG(ret_st->st_mode))
		return -ESTALE;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Reads a sample's file from a tree, if it has `bytes` bytes. *ret is allocated with malloc(). -ENOENT: no
 * such file; -ESTALE: the file is not the one that was packed; -errno. */
static int repair_origin_read(const struct repair_origin *o, const char *path, size_t path_length,
			      uint64_t bytes, unsigned char **ret)
{
	_cleanup_(freep) unsigned char *data = NULL;
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	size_t done;
	int r = open_file(o, path, path_length, &st, &fd);

	if (r < 0)
		return r;
	if ((uint64_t)st.st_size != bytes)
		return -ESTALE;
	data = malloc(bytes ? bytes : 1);
	if (!data)
		return -ENOMEM;
	r = fd_read(fd, data, bytes, &done);
	if (r < 0)
		return r;
	if (done < bytes)
		return -ESTALE;
	*ret = steal_pointer(data);
	return 0;
}

/* Returns the size of a sample's file in a tree. Errors as repair_origin_read(). */
static int repair_origin_size(const struct repair_origin *o, const char *path, size_t path_length,
			      uint64_t *ret_bytes)
{
	_cleanup_(closep) int fd = -EBADF;
	struct stat st;
	int r = open_file(o, path, path_length, &st, &fd);

	if (r == 0)
		*ret_bytes = (uint64_t)st.st_size;
	return r;
}

/* Returns the length of the class that `pack --labels` has put in front of a file's path, with its slash. Any
 * sample may have one: checksums tell which file is the right one. */
static size_t label_length(const char *path, size_t path_length)
{
	const char *slash = memchr(path, '/', path_length);

	return slash ? (size_t)(slash - path) + 1 : 0;
}

/* A record for the head of a chunk of which the metadata has all samples. The head is laid out as in
 * chunk_builder.c, and right if its checksum is the one in the metadata. */

struct known_record {
	uint32_t index;
	size_t path_offset, path_length; /* in the collected names */
	struct chunk_record record;
};

struct collect {
	const struct broken *chunk;
	struct buffer records, names;
};

static int take_path(const struct meta_path *path, void *context)
{
	struct collect *c = context;
	struct known_record known = {
	    .index = path->record_index,
	    .path_offset = c->names.bytes,
	    .path_length = path->path_length,
	    .record = path->record,
	};

	if (chunk_id_compare(&path->chunk, &c->chunk->id) != 0)
		return 0;
	if (buffer_append(&c->names, path->path, path->path_length) < 0 ||
	    buffer_append(&c->records, &known, sizeof(known)) < 0)
		return -ENOMEM;
	return 0;
}

static int compare_records(const void *a, const void *b)
{
	const struct known_record *x = a, *y = b;

	return (x->index > y->index) - (x->index < y->index);
}

/* Returns the length of the file in the first tree that has it; 0: none has. */
static uint32_t file_bytes_of(const struct repair *r, const char *path, size_t length)
{
	uint64_t bytes;

	for (size_t i = 1; i < r->n_origins; i++)
		if (!r->origins[i].store && repair_origin_size(&r->origins[i], path, length, &bytes) == 0)
			return (uint32_t)bytes;
	return 0;
}

/* Rewritten files: the chunk also has the length of the source file, which the metadata lacks. A path without
 * its class may be another file's, so whole paths come first. */
static uint32_t source_bytes_of(const struct repair *r, const char *path, size_t length)
{
	size_t label = label_length(path, length);
	uint32_t bytes = file_bytes_of(r, path, length);

	return bytes || !label ? bytes : file_bytes_of(r, path + label, length - label);
}

static int lay_out(const struct repair *r, const struct collect *c, bool rewritten, unsigned char *head)
{
	const struct meta_chunk *meta = &c->chunk->meta;
	const struct known_record *known = (const struct known_record *)c->records.data;
	struct chunk_header *header = (struct chunk_header *)head;
	struct chunk_record *records = (struct chunk_record *)(header + 1);
	size_t names_offset = sizeof(*header) + (size_t)meta->n_records * sizeof(*records), names = 0;

	if (names_offset + c->names.bytes > meta->payload_offset)
		return -ENODATA;
	*header = (struct chunk_header){
	    .magic = CHUNK_MAGIC,
	    .version = CHUNK_VERSION,
	    .flags = meta->flags,
	    .id = meta->id,
	    .n_records = meta->n_records,
	    .names_offset = (uint32_t)names_offset,
	    .payload_offset = meta->payload_offset,
	    .file_bytes = meta->file_bytes,
	    .created_ns = meta->created_ns,
	    .head_xxh3 = meta->head_xxh3,
	};
	for (uint32_t i = 0; i < meta->n_records; i++) {
		const char *path = (const char *)c->names.data + known[i].path_offset;

		if (known[i].index != i)
			return -ENODATA;
		records[i] = known[i].record;
		records[i].name_offset = (uint32_t)names;
		records[i].name_length = (uint16_t)known[i].path_length;
		records[i].source_bytes = rewritten ? source_bytes_of(r, path, known[i].path_length) : 0;
		memcpy(head + names_offset + names, path, known[i].path_length);
		names += known[i].path_length;
		header->payload_bytes += records[i].stored_bytes;
	}
	return checksum_xxh3_gap(head, meta->payload_offset, offsetof(struct chunk_header, head_xxh3)) ==
		       meta->head_xxh3
		   ? 0
		   : -ENODATA;
}

/* Makes a chunk's head from the metadata. *ret is allocated with malloc(). -ENODATA: the metadata does not
 * have all of it. */
static int repair_head_from_meta(struct repair *r, const struct broken *b, void **ret, struct error *err)
{
	struct collect c = {.chunk = b};
	_cleanup_(freep) unsigned char *head = NULL;
	int result = -ENODATA;

	/* The metadata lacks the chunk's replaced and deleted samples. */
	if (b->has_meta && r->meta && b->meta.payload_offset <= CHUNK_MAX_BYTES)
		result = meta_each_path(r->meta, take_path, &c, err);
	if (result == 0 && c.records.bytes != b->meta.n_records * sizeof(struct known_record))
		result = -ENODATA;
	if (result == 0) {
		head = calloc(1, b->meta.payload_offset ? b->meta.payload_offset : 1);
		result = head ? 0 : -ENOMEM;
	}
	if (result == 0 && c.records.bytes)
		qsort(c.records.data, b->meta.n_records, sizeof(struct known_record), compare_records);
	if (result == 0)
		result = lay_out(r, &c, false, head);
	if (result == -ENODATA && head && r->options->rewrite)
		result = lay_out(r, &c, true, head);
	buffer_free(&c.records);
	buffer_free(&c.names);
	if (result == 0)
		*ret = steal_pointer(head);
	return result;
}

/* Maximum number of samples that are read one by one; for more, the whole payload is read at once. */
#define SINGLE_READS 16

static int note_origin(const struct repair *r, struct repair_image *image, const struct repair_origin *o)
{
	const char *const *names = (const char *const *)image->names.data;

	if (o == &r->origins[0])
		return 0;
	for (size_t i = 0; i < image->names.bytes / sizeof(*names); i++)
		if (names[i] == o->name)
			return 0;
	return buffer_append(&image->names, &o->name, sizeof(o->name));
}

/* Reads a head and checks only the head. The file may be shorter or longer than the head says. */
static int read_head(struct store *store, const struct chunk_id *id, void **ret, struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	struct chunk_header header;
	struct chunk_view view;
	uint64_t needed;
	int r = store_read(store, id, 0, &header, sizeof(header), err);

	if (r < 0)
		return r;
	if (memcmp(header.magic, CHUNK_MAGIC, sizeof(header.magic)) != 0 ||
	    header.payload_offset < sizeof(header) || header.payload_offset > CHUNK_MAX_BYTES ||
	    header.file_bytes > REPAIR_MAX_BYTES)
		return -EBADMSG;
	head = malloc(header.payload_offset);
	if (!head)
		return -ENOMEM;
	r = store_read(store, id, 0, head, header.payload_offset, err);
	if (r == 0) /* the head that was just read states the chunk's length */
		r = store_parse_head(store,
				     &(struct store_object){.id = *id, .bytes = chunk_stored_bytes(head)},
				     head, header.payload_offset, &view, &needed, err);
	if (r == -EAGAIN || (r == 0 && (view.header->payload_offset != header.payload_offset ||
					view.header->file_bytes > REPAIR_MAX_BYTES)))
		return -EBADMSG;
	if (r == 0)
		*ret = steal_pointer(head);
	return r;
}

static bool is_head_of(const struct broken *b, const void *head)
{
	return !b->has_head || ((const struct chunk_header *)head)->head_xxh3 == b->head_xxh3;
}

/* Finds the head of a chunk. If neither metadata nor snapshot knows the chunk, its own head counts, if it is
 * intact. */
static int find_head(struct repair *r, const struct broken *b, struct repair_image *image, void **ret,
		     struct error *err)
{
	_cleanup_(freep) void *head = NULL;

	for (size_t i = 0; i < r->n_origins; i++) {
		if (!r->origins[i].store || read_head(r->origins[i].store, &b->id, &head, NULL) < 0)
			continue;
		if (is_head_of(b, head)) {
			image->head = i > 0 ? "its head, " : NULL;
			*ret = steal_pointer(head);
			return note_origin(r, image, &r->origins[i]);
		}
		free(steal_pointer(head));
	}
	int result = repair_head_from_meta(r, b, &head, err);

	if (result == 0) {
		image->head = "its head from the metadata, ";
		*ret = steal_pointer(head);
	}
	return result;
}

static bool is_sample(const struct chunk_record *record, const void *stored)
{
	return checksum_xxh3(stored, record->stored_bytes) == record->xxh3;
}

/* Reads the payload from its blocks, as far as they can be read. Damaged blocks become zeros. */
static unsigned char *read_blocks(const struct repair_image *image, const struct repair_origin *o)
{
	_cleanup_(freep) unsigned char *whole = NULL, *stored = NULL;
	const struct chunk_header *h = image->view.header;
	struct chunk_blocks blocks;
	uint64_t offset = h->payload_offset;

	if (chunk_blocks_in_head(h, &blocks) < 0 || !(whole = calloc(1, blocks.plain_bytes)) ||
	    !(stored = malloc(blocks.block_bytes)))
		return NULL;
	for (uint32_t i = 0; i < blocks.n; i++) {
		unsigned char *to = whole + (uint64_t)i * blocks.block_bytes;
		uint32_t bytes = chunk_block_stored(&blocks, i);

		if (store_read(o->store, &h->id, offset, stored, bytes, NULL) < 0 ||
		    chunk_block_decode(&blocks, i, stored, to, compress_decode) < 0)
			memset(to, 0, chunk_block_plain(&blocks, i));
		offset += bytes;
	}
	return steal_pointer(whole);
}

/* Fills in the missing samples that this store has. */
static int take_from_store(const struct repair *r, struct repair_image *image, const struct repair_origin *o,
			   bool *has, uint32_t n_missing)
{
	const struct chunk_header *h = image->view.header;
	uint64_t n = h->file_bytes - h->payload_offset;
	_cleanup_(freep) unsigned char *whole = NULL;
	bool gave = false;

	if (h->flags & CHUNK_FLAG_COMPRESSED) {
		whole = read_blocks(image, o);
		if (!whole)
			return -ENOMEM;
	} else if (n_missing > SINGLE_READS && (whole = malloc(n)) &&
		   store_read(o->store, &h->id, h->payload_offset, whole, n, NULL) < 0)
		free(steal_pointer(whole));
	for (uint32_t i = 0; i < h->n_records; i++) {
		const struct chunk_record *record = &image->view.records[i];
		unsigned char *to = image->data + record->offset;

		if (has[i])
			continue;
		if (whole)
			memcpy(to, whole + (record->offset - h->payload_offset), record->stored_bytes);
		else if (store_read(o->store, &h->id, record->offset, to, record->stored_bytes, NULL) < 0)
			continue;
		has[i] = is_sample(record, to);
		gave |= has[i];
	}
	return gave ? note_origin(r, image, o) : 0;
}

/* Reads a file, and rewrites it if the sample was rewritten when it was packed. Returns true if that gives
 * the stored bytes. */
static bool take_path_of(const struct repair *r, const struct repair_image *image,
			 const struct repair_origin *o, const struct chunk_record *record, const char *path,
			 size_t path_length)
{
	_cleanup_(freep) unsigned char *data = NULL;
	_cleanup_(freep) void *made = NULL;
	uint64_t bytes = record->source_bytes ? record->source_bytes : record->bytes;
	size_t made_bytes = bytes;
	struct error note = ERROR_INIT;

	if ((record->source_bytes && !r->options->rewrite) ||
	    repair_origin_read(o, path, path_length, bytes, &data) < 0)
		return false;
	if (record->source_bytes && r->options->rewrite(data, bytes, &made, &made_bytes, &note) < 0)
		return false;
	if (!made)
		made_bytes = bytes;
	if (made_bytes != record->stored_bytes || !is_sample(record, made ? made : data))
		return false;
	memcpy(image->data + record->offset, made ? made : data, made_bytes);
	return true;
}

static bool take_file(const struct repair *r, const struct repair_image *image, const struct repair_origin *o,
		      const struct chunk_record *record)
{
	const char *path = image->view.names + record->name_offset;
	size_t length = record->name_length, label = label_length(path, length);

	return take_path_of(r, image, o, record, path, length) ||
	       (label && take_path_of(r, image, o, record, path + label, length - label));
}

static int take_from_files(const struct repair *r, struct repair_image *image, const struct repair_origin *o,
			   bool *has)
{
	bool gave = false;

	for (uint32_t i = 0; i < image->view.header->n_records; i++) {
		if (has[i])
			continue;
		has[i] = take_file(r, image, o, &image->view.records[i]);
		gave |= has[i];
	}
	return gave ? note_origin(r, image, o) : 0;
}

static uint32_t count_missing(const struct repair_image *image, const bool *has)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < image->view.header->n_records; i++)
		n += !has[i];
	return n;
}

static int take_samples(const struct repair *r, struct repair_image *image, bool *has)
{
	int result = 0;

	for (size_t i = 0; i < r->n_origins && result == 0; i++) {
		uint32_t n_missing = count_missing(image, has);

		if (i == 1) /* the dataset itself comes first */
			image->n_samples = n_missing;
		if (n_missing)
			result = r->origins[i].store
				     ? take_from_store(r, image, &r->origins[i], has, n_missing)
				     : take_from_files(r, image, &r->origins[i], has);
	}
	image->n_lost = count_missing(image, has);
	if (r->n_origins == 1)
		image->n_samples = image->n_lost;
	return result;
}

static void tell_lost(const struct repair *r, const struct repair_image *image, const bool *has)
{
	char path[200], text[256];

	for (uint32_t i = 0; i < image->view.header->n_records && r->options->lost; i++) {
		const struct chunk_record *record = &image->view.records[i];
		const char *name = image->view.names + record->name_offset;
		const struct verify_damage lost = {
		    .chunk = &image->view.header->id,
		    .path = name,
		    .path_length = record->name_length,
		    .offset = record->offset,
		    .text = text,
		};

		if (has[i])
			continue;
		snprintf(text, sizeof(text), "no intact copy of sample '%s' was found",
			 text_printable(path, sizeof(path), name, record->name_length));
		r->options->lost(&lost, r->options->context);
	}
}

/* Allocates the image with the head, and zeros elsewhere, as between the samples of every chunk. */
static int begin_image(struct repair_image *image, const struct broken *b, const void *head,
		       struct error *err)
{
	const struct chunk_header *h = head;
	char id[CHUNK_ID_TEXT];

	if (h->file_bytes > REPAIR_MAX_BYTES)
		return error_set(err, -ENODATA, "the chunk is larger than any that dieselctl packs");
	image->bytes = h->file_bytes;
	image->data = calloc(1, h->file_bytes ? h->file_bytes : 1);
	if (!image->data)
		return error_errno(err, -ENOMEM, "a chunk of %llu bytes", (unsigned long long)h->file_bytes);
	memcpy(image->data, head, h->payload_offset);
	return chunk_parse_plain(image->data, image->bytes, chunk_id_format(&b->id, id), &image->view, err);
}

/* Finds the chunk's head and samples. 0: data is the chunk as it was packed; -ENODATA: a part was found
 * nowhere, err says which; -errno. Call repair_image_free() in any case. */
static int repair_image_make(struct repair *r, const struct broken *b, struct repair_image *image,
			     struct error *err)
{
	_cleanup_(freep) void *head = NULL;
	_cleanup_(freep) bool *has = NULL;
	struct digest found;
	int result = find_head(r, b, image, &head, err);

	if (result == -ENODATA)
		return error_set(err, result, "no intact copy of the chunk's head was found%s",
				 b->has_meta ? ", and the metadata does not list all of its samples" : "");
	if (result == 0)
		result = begin_image(image, b, head, err);
	if (result < 0)
		return result;
	has = calloc(image->view.header->n_records, sizeof(*has));
	if (!has)
		return error_errno(err, -ENOMEM, "samples of a chunk");
	if (!(image->view.header->flags & CHUNK_FLAG_TOMBSTONE))
		result = take_samples(r, image, has);
	if (result < 0)
		return error_errno(err, result, "samples of a chunk");
	if (image->n_lost) {
		tell_lost(r, image, has);
		return error_set(err, -ENODATA, "no intact copy was found of %u of %u samples", image->n_lost,
				 image->view.header->n_records);
	}
	if (!b->has_sha256)
		return 0;
	result = digest_of(&(struct iovec){image->data, image->bytes}, 1, &found);
	if (result < 0)
		return error_errno(err, result, "cannot compute its SHA-256");
	if (!digest_equal(&found, &b->sha256))
		return error_set(err, -ENODATA,
				 "the restored chunk is not the file that was packed (its SHA-256 differs)");
	return 0;
}

/* A compressed chunk that is being made from its plain form. */
struct stored_form {
	struct store *store;
	const struct repair_image *image;
	struct chunk_blocks blocks;
	struct compressor *compressor;
	unsigned char *file, *scratch;
};

/* Takes a block from the file if it is the right one, else compresses it again. */
static int put_block(const struct stored_form *f, uint32_t i, uint64_t offset)
{
	const struct chunk_blocks *blocks = &f->blocks;
	const unsigned char *plain =
	    f->image->data + blocks->payload_offset + (uint64_t)i * blocks->block_bytes;
	uint32_t bytes = chunk_block_plain(blocks, i), stored = chunk_block_stored(blocks, i);
	unsigned char *to = f->file + offset;

	if (stored == bytes) {
		memcpy(to, plain, bytes);
		return 0;
	}
	if (store_read(f->store, &f->image->view.header->id, offset, to, stored, NULL) == 0 &&
	    compress_decode(f->scratch, bytes, to, stored) == 0 && memcmp(f->scratch, plain, bytes) == 0)
		return 0;
	return compressor_fit(f->compressor, to, stored, plain, bytes);
}

/* Makes the file of a compressed image from the intact blocks in this store. Other blocks are compressed
 * again: their bytes may differ from the packed ones, but their content does not. -ENODATA. */
static int repair_image_store(struct store *store, struct repair_image *image, struct error *err)
{
	const struct chunk_header *h = image->view.header;
	struct stored_form f = {.store = store, .image = image};
	uint64_t at = h->payload_offset;
	int r;

	if (!(h->flags & CHUNK_FLAG_COMPRESSED))
		return 0;
	f.file = calloc(1, h->stored_bytes);
	f.scratch = malloc(CHUNK_BLOCK_MAX_BYTES);
	r = f.file && f.scratch ? chunk_blocks_in_head(h, &f.blocks) : -ENOMEM;
	if (r == 0)
		r = compressor_new(h->level ? h->level : COMPRESS_LEVEL_MIN, &f.compressor);
	if (r == 0)
		memcpy(f.file, image->data, h->payload_offset);
	for (uint32_t i = 0; r == 0 && i < f.blocks.n; i++) {
		r = put_block(&f, i, at);
		at += chunk_block_stored(&f.blocks, i);
	}
	compressor_free(f.compressor);
	free(f.scratch);
	if (r < 0)
		free(f.file);
	if (r == -ENODATA)
		return error_set(
		    err, r, "this version of libzstd cannot compress the blocks to their original lengths");
	if (r < 0)
		return error_errno(err, r, "its compressed form");
	image->file = f.file;
	image->file_bytes = h->stored_bytes;
	return 0;
}

static void repair_image_free(struct repair_image *image)
{
	free(image->file);
	free(image->data);
	buffer_free(&image->names);
}

#define TEXT_BYTES 1024

static struct broken *broken_of(const struct repair *r, size_t *ret_n)
{
	*ret_n = r->broken.bytes / sizeof(struct broken);
	return (struct broken *)r->broken.data;
}

struct repair_collector {
	struct repair *repair;
	bool no_memory;
};

static void collect_damage(const struct verify_damage *d, void *context)
{
	struct repair_collector *c = context;
	const struct verify_callbacks *callbacks = &c->repair->options->verify;
	struct broken b = {0};

	if (d->is_unread) {
		c->repair->result.n_unrepaired++;
	} else if (d->chunk) {
		b.id = *d->chunk;
		c->no_memory |= buffer_append(&c->repair->broken, &b, sizeof(b)) < 0;
	} else if (d->snapshot_only) {
		c->repair->snapshot_damaged = true;
	} else {
		c->repair->metadata_damaged = true;
	}
	callbacks->damage(d, callbacks->context);
}

static void pass_note(const char *text, void *context)
{
	const struct verify_callbacks *callbacks =
	    &((struct repair_collector *)context)->repair->options->verify;

	callbacks->note(text, callbacks->context);
}

static void pass_progress(const char *what, uint64_t done, uint64_t n_chunks, uint64_t bytes, void *context)
{
	const struct verify_callbacks *callbacks =
	    &((struct repair_collector *)context)->repair->options->verify;

	if (callbacks->progress)
		callbacks->progress(what, done, n_chunks, bytes, callbacks->context);
}

static int compare_broken(const void *a, const void *b)
{
	return chunk_id_compare(&((const struct broken *)a)->id, &((const struct broken *)b)->id);
}

/* Sorts the damaged chunks and removes duplicates, since a chunk may have several damages. */
static void sort_broken(struct repair *r)
{
	size_t n, kept = 0;
	struct broken *b = broken_of(r, &n);

	if (n)
		qsort(b, n, sizeof(*b), compare_broken);
	for (size_t i = 0; i < n; i++)
		if (kept == 0 || compare_broken(&b[kept - 1], &b[i]) != 0)
			b[kept++] = b[i];
	r->broken.bytes = kept * sizeof(*b);
}

static int find_damage(struct repair *r, const char *path, struct error *err)
{
	struct repair_collector collector = {.repair = r};
	const struct verify_callbacks callbacks = {
	    .damage = collect_damage, .note = pass_note, .progress = pass_progress, .context = &collector};
	int result = verify_dataset(path, &callbacks, &r->result.verified, err);

	if (result == 0 && collector.no_memory)
		result = error_errno(err, -ENOMEM, "cannot list the damaged chunks of %s", path);
	if (result == 0)
		sort_broken(r);
	return result;
}

static int learn_chunk(const struct meta_chunk *chunk, void *context)
{
	struct repair *r = context;
	size_t n;
	struct broken *all = broken_of(r, &n);
	struct broken *b =
	    n ? bsearch(&(struct broken){.id = chunk->id}, all, n, sizeof(*all), compare_broken) : NULL;

	if (!b)
		return 0;
	b->meta = *chunk;
	b->is_external = chunk->flags & CHUNK_FLAG_EXTERNAL;
	b->has_meta = b->has_head = true;
	b->head_xxh3 = chunk->head_xxh3;
	b->has_sha256 = chunk->has_sha256;
	b->sha256 = chunk->sha256;
	return 0;
}

/* The metadata takes precedence; the snapshot is used where the metadata has no entry. */
static int learn(struct repair *r, struct error *err)
{
	size_t n;
	struct broken *all = broken_of(r, &n);
	struct snapshot_chunk chunk;
	int result = r->meta ? meta_each_chunk(r->meta, learn_chunk, r, err) : 0;

	for (uint64_t i = 0; result == 0 && r->snapshot && snapshot_chunk_get(r->snapshot, i, &chunk) == 0;
	     i++) {
		struct broken *b =
		    n ? bsearch(&(struct broken){.id = chunk.id}, all, n, sizeof(*all), compare_broken)
		      : NULL;

		if (!b || b->has_head)
			continue;
		b->has_head = true;
		b->is_external = chunk.is_external;
		b->head_xxh3 = chunk.head_xxh3;
		b->has_sha256 = chunk.has_sha256;
		b->sha256 = chunk.sha256;
	}
	return result;
}

static void tell(const struct repair *r, const struct repair_chunk *c)
{
	if (r->options->chunk)
		r->options->chunk(c, r->options->context);
}

/* Appends the origins of the parts, as in "; from A, B". */
static void add_origins(const struct repair_image *image, char *text, size_t size)
{
	const char *const *names = (const char *const *)image->names.data;
	size_t n = strlen(text);

	for (size_t i = 0; i < image->names.bytes / sizeof(*names) && n + 1 < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s", i ? ", " : ", from ", names[i]);
}

static void describe(const struct repair *r, const struct repair_image *image, const char *name,
		     uint32_t n_foreign, char *text, size_t size)
{
	uint32_t n = image->view.header->n_records;

	if (n_foreign == 0 && !image->head)
		snprintf(text, size, "%s %s restored as it was packed: all of its samples were intact", name,
			 r->options->dry_run ? "would be" : "was");
	else
		snprintf(text, size, "%s %s repaired: %s%u of %u sample%s", name,
			 r->options->dry_run ? "would be" : "was", image->head ? image->head : "", n_foreign,
			 n, units_plural(n));
}

static struct iovec file_of(const struct repair_image *image)
{
	return image->file ? (struct iovec){image->file, image->file_bytes}
			   : (struct iovec){image->data, image->bytes};
}

/* Returns true if the file in the store equals the image. Then the metadata or snapshot that differs from it
 * is wrong. */
static bool is_there(const struct repair *r, const struct chunk_id *id, const struct repair_image *image)
{
	struct store *store = r->origins[0].store;
	_cleanup_(freep) unsigned char *now = NULL;
	const struct iovec file = file_of(image);
	uint64_t bytes;

	return store_size(store, id, &bytes, NULL) == 0 && bytes == file.iov_len &&
	       (now = malloc(bytes ? bytes : 1)) && store_read(store, id, 0, now, bytes, NULL) == 0 &&
	       memcmp(now, file.iov_base, bytes) == 0;
}

static void repair_one(struct repair *r, const struct broken *b)
{
	struct store *store = r->origins[0].store;
	struct repair_image image = {0};
	struct error why = ERROR_INIT;
	char name[STORE_NAME_MAX], text[TEXT_BYTES] = "";
	struct repair_chunk told = {.id = &b->id, .text = text};
	struct iovec file;
	int result = b->is_external
			 ? error_set(&why, -EBADMSG,
				     "its samples are in another file, as `dieselctl verify` names it: run "
				     "`dieselctl index` again")
			 : repair_image_make(r, b, &image, &why);

	if (result == 0)
		result = repair_image_store(store, &image, &why);
	file = file_of(&image);
	store_describe(store, &b->id, name);
	if (image.view.header) {
		told.n_records = image.view.header->n_records;
		told.n_samples = image.n_samples;
	}
	if (result == 0 && is_there(r, &b->id, &image)) {
		r->metadata_damaged = true;
		snprintf(text, sizeof(text),
			 "%s is unchanged since it was packed; the metadata or snapshot that describes it is "
			 "wrong",
			 name);
		told.repaired = true;
		tell(r, &told);
		repair_image_free(&image);
		return;
	}
	if (result == 0 && !r->options->dry_run)
		result = store_replace(store, &b->id, &file, 1, &why);
	if (result == 0) {
		describe(r, &image, name, image.n_samples, text, sizeof(text));
		add_origins(&image, text, sizeof(text));
		r->result.n_repaired++;
	} else {
		snprintf(text, sizeof(text), "%s cannot be repaired: %s", name,
			 why.text[0] ? why.text : strerror(-result));
		r->result.n_unrepaired++;
	}
	told.repaired = result == 0;
	tell(r, &told);
	repair_image_free(&image);
}

static int repair_chunks(struct repair *r, struct error *err)
{
	size_t n;
	const struct broken *all = broken_of(r, &n);
	uint64_t bytes = 0;
	int result = learn(r, err);

	for (size_t i = 0; i < n && result == 0; i++) {
		repair_one(r, &all[i]);
		bytes += all[i].meta.file_bytes;
		if (r->options->progress)
			r->options->progress("repairing", i + 1, n, bytes, r->options->context);
	}
	return result;
}

static void snapshot_closep(struct snapshot **s)
{
	snapshot_close(*s);
}

static void meta_freep(struct meta **m)
{
	meta_free(*m);
}

static struct snapshot *open_snapshot(const struct place *place)
{
	struct snapshot *s = NULL;

	if (snapshot_open_at(place->dir_fd, place->folder, &s, NULL) < 0)
		return NULL;
	if (snapshot_verify(s, NULL) < 0) {
		snapshot_close(s);
		return NULL;
	}
	return s;
}

/* Chunks are replaced under the writer's lock, if the metadata can still be written to. If it cannot, no
 * writer except a rebuild can change anything. */
static int repair_locked(struct repair *r, const char *path, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_(meta_freep) struct meta *meta = NULL;
	_cleanup_(snapshot_closep) struct snapshot *snapshot = open_snapshot(r->origins[0].place);
	int result = -EBADMSG;

	r->snapshot = snapshot;
	if (!r->options->dry_run) {
		result = writer_open(path, WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);
		if (result < 0 && result != -EBADMSG && result != -ESTALE)
			return result;
		if (result < 0)
			r->metadata_damaged = true;
	}
	if (result == 0) {
		result = writer_hold(w, err);
		if (result < 0)
			return result;
		r->meta = writer_meta(w);
	} else if (meta_open_at(r->origins[0].place->dir_fd, r->origins[0].place->folder, META_READ, &meta,
				NULL) == 0) {
		r->meta = meta;
	}
	if (result < 0 && !r->options->dry_run)
		result = store_sweep(r->origins[0].store, err);
	else
		result = 0;
	if (result == 0)
		result = repair_chunks(r, err);
	r->meta = NULL;
	r->snapshot = NULL;
	return result;
}

static void pass_lost(const struct chunk_id *id, const char *text, void *context)
{
	const struct repair *r = context;

	(void)id;
	r->options->verify.note(text, r->options->verify.context);
}

/* Rebuilds metadata and snapshot, or only the snapshot. All chunks are intact now. */
static int make_again(struct repair *r, const char *path, bool snapshot_only, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct writer_result committed;
	uint64_t n_lost = 0;
	int result =
	    writer_open(path, snapshot_only ? WRITER_CHANGE : WRITER_REBUILD, CHUNK_DEFAULT_BYTES, &w, err);

	if (result == 0)
		writer_show(w, r->options->progress, r->options->context);
	if (result == 0 && snapshot_only)
		return writer_snapshot(w, err);
	if (result == 0)
		writer_set_command(w, r->options->command);
	if (result == 0)
		result = writer_rebuild(w, pass_lost, r, &n_lost, err);
	if (result == 0 && n_lost) /* damaged since they were verified */
		result = error_set(err, -EBADMSG, "%llu chunk%s cannot be read", (unsigned long long)n_lost,
				   units_plural(n_lost));
	return result < 0 ? result : writer_commit(w, &committed, err);
}

static int repair_metadata(struct repair *r, const char *path, struct error *err)
{
	bool snapshot_only = !r->metadata_damaged && !r->origins[0].place->ops;
	const char *what = snapshot_only ? "the snapshot" : "metadata and snapshot";
	char text[TEXT_BYTES];
	struct repair_chunk told = {.text = text, .repaired = r->result.n_unrepaired == 0};
	struct error why = ERROR_INIT;

	(void)err;
	if (!r->metadata_damaged && !r->snapshot_damaged)
		return 0;
	if (!told.repaired) {
		snprintf(text, sizeof(text),
			 "%s cannot be rebuilt while chunks are damaged; `dieselctl rebuild` leaves the "
			 "damaged chunks out",
			 what);
	} else if (r->options->dry_run) {
		snprintf(text, sizeof(text), "%s would be rebuilt from the chunks", what);
	} else if (make_again(r, path, snapshot_only, &why) < 0) {
		told.repaired = false;
		snprintf(text, sizeof(text), "%s cannot be rebuilt: %s", what, why.text);
	} else {
		snprintf(text, sizeof(text), "%s rebuilt", what);
	}
	if (told.repaired)
		r->result.n_repaired++;
	else
		r->result.n_unrepaired++;
	tell(r, &told);
	return 0;
}

/* Opens an origin. -ENOENT, -EACCES and the like; -ENOTDIR: neither a dataset nor a folder. */
static int repair_origin_open(const char *name, struct repair_origin *ret, struct error *err)
{
	struct repair_origin o = {.name = name, .source_fd = -EBADF};
	_cleanup_(closep) int fd = -EBADF;
	int r;

	if (!backend_is_elsewhere(name)) {
		fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, -errno,
					   "cannot open %s, a replica or a source to repair from", name);
		if (!meta_is_dataset(fd)) {
			o.source_fd = steal_fd(&fd);
			*ret = o;
			return 0;
		}
	}
	r = backend_open(name, BACKEND_SNAPSHOT, &o.place, err);
	if (r == 0)
		r = backend_store(o.place, false, &o.store, err);
	if (r < 0) {
		repair_origin_close(&o);
		return r;
	}
	*ret = o;
	return 0;
}

static int open_origins(struct repair *r, const char *path, struct error *err)
{
	r->origins = calloc(r->options->n_from + 1, sizeof(*r->origins));
	if (!r->origins)
		return error_errno(err, -ENOMEM, "%s", path);
	for (size_t i = 0; i < r->options->n_from; i++) {
		int result = repair_origin_open(r->options->from[i], &r->origins[i + 1], err);

		if (result < 0)
			return result;
		r->n_origins = i + 2;
	}
	return 0;
}

static int open_dataset(struct repair *r, const char *path, struct error *err)
{
	struct repair_origin *own = &r->origins[0];
	int result;

	own->name = path;
	own->source_fd = -EBADF;
	result = backend_open(path, BACKEND_READ, &own->place, err);
	if (result == 0 && !own->place->ops && !r->options->dry_run)
		backend_open_folder(own->place, true);
	if (result == 0)
		result = backend_store(own->place, false, &own->store, err);
	if (result == 0 && r->n_origins == 0)
		r->n_origins = 1;
	return result;
}

static int run(struct repair *r, const char *path, struct error *err)
{
	int result = open_origins(r, path, err);

	if (result == 0)
		result = find_damage(r, path, err);
	if (result < 0)
		return result;
	if (r->options->verified)
		r->options->verified(&r->result.verified, r->options->context);
	if (r->result.verified.n_damages == 0)
		return 0;
	result = open_dataset(r, path, err);
	if (result == 0)
		result = repair_locked(r, path, err);
	return result < 0 ? result : repair_metadata(r, path, err);
}

int repair_dataset(const char *dataset_path, const struct repair_options *options, struct repair_result *ret,
		   struct error *err)
{
	struct repair r = {.options = options};
	int result = run(&r, dataset_path, err);

	for (size_t i = 0; r.origins && i <= options->n_from; i++)
		if (r.origins[i].name)
			repair_origin_close(&r.origins[i]);
	free(r.origins);
	buffer_free(&r.broken);
	if (result == 0)
		*ret = r.result;
	return result;
}
