/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/chunk.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "dataset/blocks.h"
#include "dataset/external.h"
#include "lib/text.h"

/* Formats are little endian; a big-endian port has to swap in this file, chunk_builder.c and snapshot*.c. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored structs are used in place");

#define DAMAGED "restore the file, or remove it and run `dieselctl rebuild`"

/* Checks the length of the head, which must be right before the checksum can be computed. */
static int check_frame(const struct chunk_header *header, uint64_t file_bytes, const char *origin,
		       struct error *err)
{
	if (memcmp(header->magic, CHUNK_MAGIC, sizeof(header->magic)) != 0)
		return error_set(err, -EBADMSG, "%s is not a chunk (wrong magic); " DAMAGED, origin);
	if (header->version > CHUNK_VERSION)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has chunk format version %u, this program supports up to %u; update it",
				 origin, header->version, CHUNK_VERSION);
	if (header->version == 0 || header->payload_offset % CHUNK_ALIGN || header->payload_offset == 0 ||
	    header->payload_offset > CHUNK_MAX_BYTES)
		return error_set(err, -EBADMSG, "%s: the chunk's header is damaged; " DAMAGED, origin);
	if (header->payload_offset > file_bytes)
		return error_set(err, -EBADMSG,
				 "%s is truncated at byte %llu, but its head needs %u bytes; " DAMAGED,
				 origin, (unsigned long long)file_bytes, header->payload_offset);
	return 0;
}

int chunk_columns(const struct chunk_header *h, struct columns *ret)
{
	uint32_t at = h->columns_offset, bytes;

	if (h->flags & CHUNK_FLAG_TOMBSTONE || !chunk_layout_has_columns(chunk_layout_of(h->flags))) {
		*ret = (struct columns){0};
		return 0;
	}
	if (at < sizeof(*h) || at > h->payload_offset || h->payload_offset - at < sizeof(bytes))
		return -EBADMSG;
	memcpy(&bytes, (const char *)h + at, sizeof(bytes)); /* struct columns_head */
	if (bytes > h->payload_offset - at)
		return -EBADMSG;
	*ret = (struct columns){(const char *)h + at, bytes};
	return 0;
}

/* A matching checksum does not prove that the fields are valid: a hostile writer can compute checksums, too.
 */
static int check_header(const struct chunk_header *header, uint64_t file_bytes, bool is_plain,
			const char *origin, struct error *err)
{
	uint64_t wanted = is_plain ? header->file_bytes : chunk_stored_bytes(header);
	struct chunk_blocks blocks;
	struct columns columns;
	uint64_t names_offset = sizeof(*header) + (uint64_t)header->n_records * sizeof(struct chunk_record);

	if (header->flags & ~(uint32_t)CHUNK_KNOWN_FLAGS || chunk_layout_of(header->flags) >= CHUNK_N_LAYOUTS)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s uses chunk features (flags %#x) that this program does not support; update it",
		    origin, header->flags);
	if (wanted != file_bytes)
		return error_set(err, -EBADMSG, "%s %s: %llu bytes, its header states %llu; " DAMAGED, origin,
				 file_bytes < wanted ? "is truncated" : "is too long",
				 (unsigned long long)file_bytes, (unsigned long long)wanted);
	if (header->n_records == 0 || names_offset > header->payload_offset ||
	    header->names_offset != names_offset || header->file_bytes % CHUNK_ALIGN ||
	    header->payload_offset > header->file_bytes ||
	    ((header->flags & CHUNK_FLAG_TOMBSTONE) && header->file_bytes != header->payload_offset) ||
	    ((header->flags & CHUNK_FLAG_COMPRESSED) && chunk_blocks_in_head(header, &blocks) < 0) ||
	    ((header->flags & CHUNK_FLAG_EXTERNAL) && external_in_head(header, NULL) < 0) ||
	    chunk_columns(header, &columns) < 0)
		return error_set(err, -EBADMSG, "%s: the chunk's header contradicts itself; " DAMAGED,
				 origin);
	return 0;
}

static bool record_is_inside(const struct chunk_header *header, const struct chunk_record *r)
{
	uint64_t names_bytes = header->payload_offset - header->names_offset;

	if (r->name_offset > names_bytes || r->name_length > names_bytes - r->name_offset)
		return false;
	if (header->flags & CHUNK_FLAG_TOMBSTONE)
		return r->offset == 0 && r->bytes == 0 && r->stored_bytes == 0;
	return r->offset >= header->payload_offset && r->offset <= header->file_bytes &&
	       r->stored_bytes <= header->file_bytes - r->offset;
}

static int check_records(const struct chunk_view *view, const char *origin, struct error *err)
{
	const struct chunk_header *header = view->header;
	uint64_t payload_bytes = 0;

	for (uint32_t i = 0; i < header->n_records; i++) {
		const struct chunk_record *r = &view->records[i];

		if (!record_is_inside(header, r) ||
		    !chunk_name_is_valid(view->names + r->name_offset, r->name_length))
			return error_set(
			    err, -EBADMSG,
			    "%s: record %u lies outside the chunk or has an invalid name; " DAMAGED, origin,
			    i);
		if (r->encoding != CHUNK_ENCODING_RAW)
			return error_set(
			    err, -EPROTONOSUPPORT,
			    "%s: record %u has encoding %u, which this program does not support; update it",
			    origin, i, r->encoding);
		if (r->bytes != r->stored_bytes)
			return error_set(err, -EBADMSG, "%s: record %u gives two different lengths; " DAMAGED,
					 origin, i);
		payload_bytes += r->stored_bytes;
	}
	if (payload_bytes != header->payload_bytes)
		return error_set(
		    err, -EBADMSG,
		    "%s: the lengths of its records do not add up to that of its payload; " DAMAGED, origin);
	return 0;
}

struct chunk_bytes {
	const void *head;
	size_t head_bytes;
	uint64_t file_bytes;
	bool is_plain;
};

static int parse(const struct chunk_bytes *b, const char *origin, struct chunk_view *ret_view,
		 uint64_t *needed, struct error *err)
{
	const void *head = b->head;
	uint64_t head_bytes = b->head_bytes, file_bytes = b->file_bytes;
	const struct chunk_header *header = head;
	int r;

	assert((uintptr_t)head % _Alignof(struct chunk_header) == 0);
	if (file_bytes < sizeof(*header))
		return error_set(err, -EBADMSG, "%s is truncated at byte %llu; " DAMAGED, origin,
				 (unsigned long long)file_bytes);
	if (head_bytes < sizeof(*header)) {
		*needed = sizeof(*header);
		return -EAGAIN;
	}
	r = check_frame(header, file_bytes, origin, err);
	if (r < 0)
		return r;
	if (head_bytes < header->payload_offset) {
		*needed = header->payload_offset;
		return -EAGAIN;
	}
	if (checksum_xxh3_gap(head, header->payload_offset, offsetof(struct chunk_header, head_xxh3)) !=
	    header->head_xxh3)
		return error_set(err, -EBADMSG,
				 "%s: the chunk's head is damaged (checksum mismatch); " DAMAGED, origin);
	r = check_header(header, file_bytes, b->is_plain, origin, err);
	if (r < 0)
		return r;

	struct chunk_view view = {
	    .header = header,
	    .records = (const struct chunk_record *)(header + 1),
	    .names = (const char *)head + header->names_offset,
	};

	r = check_records(&view, origin, err);
	if (r < 0)
		return r;
	*ret_view = view;
	return 0;
}

int chunk_parse_head(const void *head, size_t head_bytes, uint64_t file_bytes, const char *origin,
		     struct chunk_view *ret_view, uint64_t *needed, struct error *err)
{
	const struct chunk_bytes bytes = {.head = head, .head_bytes = head_bytes, .file_bytes = file_bytes};

	return parse(&bytes, origin, ret_view, needed, err);
}

int chunk_parse_plain(const void *plain, uint64_t plain_bytes, const char *origin,
		      struct chunk_view *ret_view, struct error *err)
{
	const struct chunk_bytes bytes = {plain, plain_bytes, plain_bytes, .is_plain = true};
	uint64_t needed;
	int r = parse(&bytes, origin, ret_view, &needed, err);

	return r == -EAGAIN ? error_set(err, -EBADMSG, "%s: its head is longer than the file", origin) : r;
}

void chunk_set_id(void *head, const struct chunk_id *id)
{
	struct chunk_header *header = head;

	header->id = *id;
	header->head_xxh3 =
	    checksum_xxh3_gap(head, header->payload_offset, offsetof(struct chunk_header, head_xxh3));
}

int chunk_verify_record(const struct chunk_view *view, uint32_t record, const void *stored,
			const char *origin, struct error *err)
{
	assert(record < view->header->n_records);
	const struct chunk_record *r = &view->records[record];
	char path[160];

	if (checksum_matches(r->xxh3, view->header->flags & CHUNK_FLAG_EXTERNAL, stored, r->stored_bytes))
		return 0;
	return error_set(err, -EBADMSG, "%s: sample '%s' at byte %llu is damaged (checksum mismatch)", origin,
			 text_printable(path, sizeof(path), view->names + r->name_offset, r->name_length),
			 (unsigned long long)r->offset);
}
