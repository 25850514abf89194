/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The chunk: a large self-contained file of samples. One read of its head rebuilds its metadata.
 *
 * File name "<id>.chunk", id as 32 hexadecimal digits. Little endian. A chunk is immutable once published.
 *
 *   0                 header, 128 bytes (struct chunk_header)
 *   128               record table: n_records x struct chunk_record (64 bytes)
 *   names_offset      names: the samples' paths, no terminators, cut by name_offset/name_length
 *   payload_offset    payload, 4 KiB aligned so that it can be read with O_DIRECT
 *   file_bytes        end; a multiple of 4 KiB, padded with zeros
 *
 * The head is [0, payload_offset). header.head_xxh3 covers the head with that field taken as 0;
 * record.xxh3 covers the sample's stored bytes. So every byte that matters is covered.
 *
 * With CHUNK_FLAG_COMPRESSED the above is the chunk's plain form: its layout in memory, to which offsets,
 * lengths and checksums refer. The file has the same head, then the payload's blocks one after another, each
 * compressed or unchanged (blocks.h), then zeros up to stored_bytes, the file's length.
 *
 * With CHUNK_FLAG_EXTERNAL the above is again the plain form, and the file has only the head: the payload is
 * a range of another file, such as a tar shard, which stays where it is (external.h).
 *
 * A chunk with CHUNK_FLAG_TOMBSTONE has no payload; its records name paths that are deleted from then on.
 * Replaying the chunks in id order rebuilds all metadata of a dataset: the last record of a path wins.
 *
 * A sample starts at a multiple of CHUNK_SAMPLE_ALIGN, so that numbers in it can be used in place, except in
 * external chunks. A file is no larger than the chunk size it was packed with, unless it holds a single
 * sample.
 *
 * A name is a relative path: components between single slashes, none of them "." or "..", no NUL.
 *
 * Thread-safety: a parsed view is read-only and may be shared.
 */

#include "lib/error.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHUNK_MAGIC         "DSLCHNK"
#define CHUNK_VERSION       1
#define CHUNK_ALIGN         4096u
#define CHUNK_SAMPLE_ALIGN  16u
#define CHUNK_MIN_BYTES     (4u << 20)
#define CHUNK_MAX_BYTES     (64u << 20)
#define CHUNK_DEFAULT_BYTES (8u << 20)
#define CHUNK_NAME_MAX      4095u
/* maximum length of a sample. One that is longer than the chunk size gets its own chunk. */
#define CHUNK_SAMPLE_MAX_BYTES (1u << 30)

/* Big-endian time in us since 1970 (7 bytes), machine (4), process (3), counter (2): memcmp() sorts ids by
 * creation. */
struct chunk_id {
	uint8_t bytes[16];
};

enum chunk_flag {
	CHUNK_FLAG_TOMBSTONE = 1 << 0,
	CHUNK_FLAG_COMPRESSED = 1 << 1,
	CHUNK_FLAG_EXTERNAL = 1 << 2,
};

/* How the bytes of a sample hold its fields. All samples of a dataset have one layout; tombstones have none.
 */
enum chunk_layout {
	CHUNK_LAYOUT_PLAIN,  /* one value */
	CHUNK_LAYOUT_FIELDS, /* fields.h */
	CHUNK_LAYOUT_TAR, /* the members of a tar archive that share a key, without the end of the archive */
	CHUNK_LAYOUT_MDS, /* columns.h: of shards of MosaicML Streaming */
	CHUNK_LAYOUT_LITDATA, /* columns.h: of chunks of LitData */
	CHUNK_N_LAYOUTS,
};

/* The columns of samples (columns.h). {0}: the layout has none. */
struct columns {
	const void *data;
	size_t bytes;
};

#define CHUNK_LAYOUT_SHIFT 8 /* of the layout in the flags */
#define CHUNK_LAYOUT_MASK  (0xfu << CHUNK_LAYOUT_SHIFT)

/* flags of chunks whose file is not their plain form */
#define CHUNK_FORM_FLAGS  (CHUNK_FLAG_COMPRESSED | CHUNK_FLAG_EXTERNAL)
#define CHUNK_KNOWN_FLAGS (CHUNK_FLAG_TOMBSTONE | CHUNK_FORM_FLAGS | CHUNK_LAYOUT_MASK)

struct chunk_header {
	char magic[8]; /* CHUNK_MAGIC with its terminator */
	uint32_t version;
	uint32_t flags; /* enum chunk_flag, and the layout; a chunk with unknown bits is refused */
	struct chunk_id id;
	uint32_t n_records;
	uint32_t names_offset;
	uint32_t payload_offset; /* also the head's length */
	uint32_t columns_offset; /* offset in the head of the columns, if the layout has any; otherwise 0 */
	uint64_t file_bytes;     /* length of the plain form */
	uint64_t payload_bytes;  /* stored bytes of all samples, without padding */
	uint64_t created_ns;     /* CLOCK_REALTIME */
	uint64_t head_xxh3;
	/* With CHUNK_FLAG_COMPRESSED; otherwise 0. */
	uint64_t stored_bytes;  /* length of the file; less than file_bytes. Also of external chunks */
	uint32_t blocks_offset; /* offset in the head of the blocks' stored lengths, 4 bytes each; in external
				   chunks of struct chunk_external */
	uint32_t block_bytes;   /* length of each block except the last */
	uint8_t level;          /* compression level of the blocks */
	uint8_t reserved[31];
};

enum chunk_encoding {
	CHUNK_ENCODING_RAW = 0, /* stored as is: stored_bytes == bytes */
};

struct chunk_record {
	uint64_t offset;       /* where the stored bytes begin in the file */
	uint32_t bytes;        /* length of the sample */
	uint32_t stored_bytes; /* length in the chunk */
	uint64_t xxh3;         /* XXH3-64 of the stored bytes, or 0 in external chunks */
	uint64_t mtime_ns;
	uint32_t mode;        /* st_mode of the source */
	uint32_t name_offset; /* from names_offset */
	uint16_t name_length;
	uint16_t encoding;     /* enum chunk_encoding */
	uint32_t source_bytes; /* length of the source file if it was rewritten before packing; else 0 */
	uint8_t reserved[16];
};

_Static_assert(sizeof(struct chunk_id) == 16, "stored");
_Static_assert(sizeof(struct chunk_header) == 128, "stored");
_Static_assert(sizeof(struct chunk_record) == 64, "stored");

#define CHUNK_ID_TEXT 33 /* bytes of an id as text: 32 digits and a terminator */

/* Format an id as 32 hexadecimal digits, and parse one. -EINVAL: the text is not an id. */
char *chunk_id_format(const struct chunk_id *id, char text[CHUNK_ID_TEXT]);
int chunk_id_parse(const char *text, struct chunk_id *ret_id);

/* A checked view of a head that the caller holds in memory; valid as long as that memory is. */
struct chunk_view {
	const struct chunk_header *header;
	const struct chunk_record *records;
	const char *names;
};

/* Returns true if a record may have this name (see above). */
bool chunk_name_is_valid(const char *name, size_t length);

/*
 * Checks everything about the head: magic, version, checksum, and that every offset, length and name lies
 * inside the file. head is 8-byte aligned; head_bytes may be more than the head; file_bytes is the size
 * of the whole file. origin names the file in error texts.
 * -EAGAIN: head_bytes is less than the head, *needed says how much to read; -EBADMSG: damaged, hostile or
 * truncated; -EPROTONOSUPPORT: a newer version.
 */
int chunk_parse_head(const void *head, size_t head_bytes, uint64_t file_bytes, const char *origin,
		     struct chunk_view *ret_view, uint64_t *needed, struct error *err);
/* Parses a chunk's plain form, which is complete and has plain_bytes bytes. */
int chunk_parse_plain(const void *plain, uint64_t plain_bytes, const char *origin,
		      struct chunk_view *ret_view, struct error *err);

static inline enum chunk_layout chunk_layout_of(uint32_t flags)
{
	return (enum chunk_layout)((flags & CHUNK_LAYOUT_MASK) >> CHUNK_LAYOUT_SHIFT);
}
static inline uint32_t chunk_layout_flags(enum chunk_layout layout)
{
	return (uint32_t)layout << CHUNK_LAYOUT_SHIFT;
}
static inline bool chunk_layout_has_columns(enum chunk_layout layout)
{
	return layout == CHUNK_LAYOUT_MDS || layout == CHUNK_LAYOUT_LITDATA;
}
/* Returns "plain", "fields", "tar", ... */
const char *chunk_layout_name(enum chunk_layout layout);

/* Finds the columns in a head that is in memory up to payload_offset. -EBADMSG: they lie outside. */
int chunk_columns(const struct chunk_header *header, struct columns *ret);

/* Returns true if a failed read found wrong bytes, or something else in the chunk's place. After any other
 * failure, nothing is known about the bytes. */
static inline bool chunk_is_damage(int result)
{
	return result == -EBADMSG || result == -EPROTONOSUPPORT || result == -ELOOP;
}

/* Remedy for a chunk that storage does not have, for error_advise(). */
#define CHUNK_MISSING                                                                                        \
	"it was deleted, or belongs to a version that was purged: open the newest version, or restore it "   \
	"with `dieselctl verify --repair`"

/* Returns the length of the chunk's file. */
static inline uint64_t chunk_stored_bytes(const struct chunk_header *h)
{
	return h->flags & CHUNK_FORM_FLAGS ? h->stored_bytes : h->file_bytes;
}

/* Gives a parsed head, which is complete and can be written to, another id. */
void chunk_set_id(void *head, const struct chunk_id *id);

/* Checks stored bytes against the checksum in their record. -EBADMSG: they are damaged; err names the file
 * and the path. */
int chunk_verify_record(const struct chunk_view *view, uint32_t record, const void *stored,
			const char *origin, struct error *err);
