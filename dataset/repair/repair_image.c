/* SPDX-License-Identifier: Apache-2.0 */
#include "repair_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/blocks.h"
#include "dataset/checksum/checksum.h"
#include "dataset/chunk_id.h"
#include "dataset/compress.h"
#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/text.h"
#include "repair_origin.h"

void repair_origin_close(struct repair_origin *o)
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

int repair_image_make(struct repair *r, const struct broken *b, struct repair_image *image, struct error *err)
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

int repair_image_store(struct store *store, struct repair_image *image, struct error *err)
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

void repair_image_free(struct repair_image *image)
{
	free(image->file);
	free(image->data);
	buffer_free(&image->names);
}
