/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of a snapshot file (docs/reference/formats.md): the header, and the sections, each 64-byte
 * aligned, in any order. Little endian.
 */

#include "dataset/snapshot.h"

#define SNAPSHOT_MAGIC  "DSLSNAP"
#define SNAPSHOT_FORMAT 5
#define SNAPSHOT_ALIGN  64u

enum snapshot_section {
	SNAPSHOT_CHUNKS,  /* n_chunks x struct snapshot_chunk_entry, ids ascending; columns.h */
	SNAPSHOT_RECORDS, /* n_samples x struct snapshot_record, in storage order */
	SNAPSHOT_HASH,    /* at least n_buckets x struct snapshot_bucket */
	SNAPSHOT_TREE,    /* n_samples x uint32_t: sample numbers in tree order (path_order.h) */
	SNAPSHOT_PATHS,   /* the paths' bytes, in tree order, no terminators */
	SNAPSHOT_CLASSES, /* n_classes x struct snapshot_class, names ascending */
	SNAPSHOT_DIGESTS, /* n_chunks x struct digest, the SHA-256 of each chunk's file; or nothing */
	SNAPSHOT_TIMES,   /* for each chunk, at its times_offset: places, then times */
	SNAPSHOT_N_SECTIONS
};

struct snapshot_extent {
	uint64_t offset; /* offset from the file's start */
	uint64_t bytes;
	uint64_t xxh3;
};

enum snapshot_flag {
	SNAPSHOT_FLAG_DIGESTS = 1 << 0,
	SNAPSHOT_FLAG_COMPRESSED = 1 << 1, /* some chunk is compressed */
	SNAPSHOT_FLAG_EXTERNAL = 1 << 2,   /* some chunk is external */
};

struct snapshot_header {
	char magic[8]; /* SNAPSHOT_MAGIC with its terminator */
	uint32_t format;
	uint32_t n_sections;
	uint64_t file_bytes;
	uint64_t version; /* version of the dataset */
	uint64_t n_samples;
	uint64_t n_chunks;
	uint32_t n_classes;
	uint32_t equal_bytes;
	uint32_t max_bytes;
	uint32_t names; /* enum snapshot_names */
	uint64_t total_bytes;
	uint64_t max_chunk_file_bytes;
	uint64_t created_ns;
	uint64_t header_xxh3; /* XXH3-64 of the header with this field taken as 0 */
	struct snapshot_extent sections[SNAPSHOT_N_SECTIONS];
	uint64_t n_buckets;
	uint64_t flags;  /* enum snapshot_flag */
	uint32_t layout; /* enum chunk_layout of all samples */
	uint8_t reserved[4];
};

/* A sample's place in its chunk is sample - first_sample unless has_places, and its modification time
 * base_ns + unit * time, with a time of time_bytes. */
struct snapshot_chunk_entry {
	struct chunk_id id;
	uint64_t file_bytes;
	uint64_t first_sample;
	uint32_t n_samples;
	uint32_t payload_offset;
	uint64_t head_xxh3;
	uint32_t times_offset; /* offset in SNAPSHOT_TIMES, in units of SNAPSHOT_TIMES_ALIGN */
	uint8_t time_bytes;    /* 0 .. 8 */
	uint8_t time_unit;     /* enum snapshot_time_unit */
	uint8_t has_places;    /* the times are behind n_samples x uint32_t */
	uint8_t form;          /* enum snapshot_form */
	uint64_t base_ns;
};

#define SNAPSHOT_TIMES_ALIGN 8u

/* form of a chunk's file */
enum snapshot_form {
	SNAPSHOT_FORM_PLAIN,
	SNAPSHOT_FORM_COMPRESSED,
	SNAPSHOT_FORM_EXTERNAL,
};

static inline enum snapshot_form snapshot_form_of(uint32_t chunk_flags)
{
	return chunk_flags & CHUNK_FLAG_COMPRESSED ? SNAPSHOT_FORM_COMPRESSED
	       : chunk_flags & CHUNK_FLAG_EXTERNAL ? SNAPSHOT_FORM_EXTERNAL
						   : SNAPSHOT_FORM_PLAIN;
}

enum snapshot_time_unit {
	SNAPSHOT_NANOSECONDS,
	SNAPSHOT_SECONDS,
};

/* A sample, stored unchanged (CHUNK_ENCODING_RAW). Its chunk and its class are those whose range of samples
 * or paths contains it. */
struct snapshot_record {
	uint64_t xxh3;
	/* Bits 0-30: length; 31-59: offset in the chunk's plain form; 60-63: bits 12-15 of the mode. */
	uint64_t stored;
	/* Bits 0-39: offset in SNAPSHOT_PATHS; 40-51: length; 52-63: bits 0-11 of the mode. */
	uint64_t path;
};

#define SNAPSHOT_BYTES_BITS       31
#define SNAPSHOT_OFFSET_BITS      29
#define SNAPSHOT_PATH_OFFSET_BITS 40
#define SNAPSHOT_PATH_LENGTH_BITS 12

/*
 * The search for a path of XXH3-64 `hash` begins at bucket hash * n_buckets / 2^64, continues in the next
 * bucket while buckets are full, and ends after SNAPSHOT_PROBE_MAX buckets. Additional buckets after
 * n_buckets take the overflow of the last ones.
 */
#define SNAPSHOT_BUCKET_SLOTS 12u

struct snapshot_bucket {
	uint8_t tags[SNAPSHOT_BUCKET_SLOTS]; /* low 8 bits of the hash */
	uint32_t n_taken;
	uint32_t samples[SNAPSHOT_BUCKET_SLOTS];
};

struct snapshot_class {
	uint64_t name_offset; /* offset in SNAPSHOT_PATHS of the class's first path, whose first component is
				 the class's name */
	uint32_t name_length;
	uint32_t reserved;
};

_Static_assert(sizeof(struct snapshot_extent) == 24, "stored");
_Static_assert(sizeof(struct snapshot_header) == 312, "stored");
_Static_assert(sizeof(struct snapshot_chunk_entry) == 64, "stored");
_Static_assert(sizeof(struct snapshot_record) == 24, "stored");
_Static_assert(sizeof(struct snapshot_bucket) == 64, "stored");
_Static_assert(sizeof(struct snapshot_class) == 16, "stored");
_Static_assert(sizeof(struct digest) == 32, "stored");

static inline uint64_t snapshot_bucket_of(uint64_t hash, uint64_t n_buckets)
{
	return (uint64_t)((unsigned __int128)hash * n_buckets >> 64);
}

/* The index has n_buckets buckets for n samples, with 11 of 12 slots taken. Then runs of full buckets grow
 * with the logarithm of their number: with four thousand million samples the longest run is far below this.
 */
#define SNAPSHOT_BUCKET_LOAD 11u
#define SNAPSHOT_PROBE_MAX   64u

/* Sample numbers are stored in 32 bits. */
#define SNAPSHOT_MAX_SAMPLES (UINT32_MAX - 1)
