/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of a snapshot file (docs/formats.md): the header; the sections, each 64-byte aligned, in the
 * order of enum snapshot_section; in format 2 also n_chunks x struct digest, the SHA-256 of each chunk's file
 * in the chunk table's order. A snapshot without digests has format 1, which older programs read. Little
 * endian.
 */

#include "dataset/snapshot.h"

#define SNAPSHOT_MAGIC           "DSLSNAP"
#define SNAPSHOT_VERSION         2 /* the newest that is known */
#define SNAPSHOT_VERSION_PLAIN   1
#define SNAPSHOT_VERSION_DIGESTS 2
#define SNAPSHOT_ALIGN           64u

enum snapshot_section {
	SNAPSHOT_CHUNKS,  /* n_chunks x struct snapshot_chunk_entry, ids ascending */
	SNAPSHOT_RECORDS, /* n_samples x struct snapshot_record, in storage order */
	SNAPSHOT_HASH,    /* a power of two of struct snapshot_slot, at most three quarters of them taken */
	SNAPSHOT_TREE,    /* n_samples x uint32_t: sample numbers in tree order (path_order.h) */
	SNAPSHOT_PATHS,   /* the paths' bytes, in tree order, no terminators */
	SNAPSHOT_CLASSES, /* n_classes x struct snapshot_class, names ascending */
	SNAPSHOT_N_SECTIONS
};

struct snapshot_extent {
	uint64_t offset; /* from the file's start */
	uint64_t bytes;
	uint64_t xxh3;
};

struct snapshot_header {
	char magic[8]; /* SNAPSHOT_MAGIC with its terminator */
	uint32_t format;
	uint32_t n_sections;
	uint64_t file_bytes;
	uint64_t version; /* of the dataset */
	uint64_t n_samples;
	uint64_t n_chunks;
	uint32_t n_classes;
	uint32_t equal_bytes;
	uint32_t max_bytes;
	uint32_t names; /* enum snapshot_names; 0 in files of older programs */
	uint64_t total_bytes;
	uint64_t max_chunk_file_bytes;
	uint64_t created_ns;
	uint64_t header_xxh3; /* of the header with this field taken as 0 */
	struct snapshot_extent sections[SNAPSHOT_N_SECTIONS];
	uint64_t digests_offset; /* 0 in format 1 */
	uint64_t digests_xxh3;
};

struct snapshot_chunk_entry {
	struct chunk_id id;
	uint64_t file_bytes;
	uint64_t first_sample;
	uint32_t n_samples;
	uint32_t payload_offset;
	uint64_t head_xxh3;
	uint8_t reserved[16];
};

struct snapshot_record {
	uint64_t offset;
	uint64_t xxh3;
	uint64_t mtime_ns;
	uint64_t path_offset; /* in SNAPSHOT_PATHS */
	uint32_t chunk;
	uint32_t record;
	uint32_t bytes;
	uint32_t stored_bytes;
	uint32_t mode;
	int32_t class_index;
	uint16_t path_length;
	uint16_t encoding;
	uint8_t reserved[4];
};

/* Open addressing: the search for a path starts at slot (hash mod slots) and goes on with the next ones. */
struct snapshot_slot {
	uint32_t sample_plus_1; /* 0: free, the search ends */
	uint32_t tag;           /* high half of the path's XXH3-64; the low half chooses the first slot */
};

struct snapshot_class {
	uint64_t
	    name_offset; /* in SNAPSHOT_PATHS: the class's first path, of which it is the first component */
	uint32_t name_length;
	uint32_t reserved;
};

_Static_assert(sizeof(struct snapshot_extent) == 24, "stored");
_Static_assert(sizeof(struct snapshot_header) == 256, "stored");
_Static_assert(sizeof(struct snapshot_chunk_entry) == 64, "stored");
_Static_assert(sizeof(struct snapshot_record) == 64, "stored");
_Static_assert(sizeof(struct snapshot_slot) == 8, "stored");
_Static_assert(sizeof(struct snapshot_class) == 16, "stored");
_Static_assert(sizeof(struct digest) == 32, "stored");

/* The most slots that a search in the hash index looks at. In an index that is three quarters full the
 * longest run of taken slots grows with the logarithm of their number: even with four thousand million
 * samples it stays far below this. */
#define SNAPSHOT_PROBE_MAX 1024u

/* Sample numbers are stored in 32 bits, of which one value means "free". */
#define SNAPSHOT_MAX_SAMPLES (UINT32_MAX - 1)
