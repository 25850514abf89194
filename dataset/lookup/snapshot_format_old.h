/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The bytes of snapshots of format 1, and of format 2, which has digests; as far as they differ from those of
 * format 3 (snapshot_format.h): header, records and hash index. They are only read.
 */

#include "snapshot_format.h"

#define SNAPSHOT_OLD_PLAIN      1
#define SNAPSHOT_OLD_DIGESTS    2
#define SNAPSHOT_OLD_N_SECTIONS SNAPSHOT_DIGESTS /* the sections before that one */

/* From `magic` to `header_xxh3` as struct snapshot_header; `names` is 0 in files of still older programs. */
struct snapshot_old_header {
	uint8_t common[offsetof(struct snapshot_header, sections)];
	struct snapshot_extent sections[SNAPSHOT_OLD_N_SECTIONS];
	uint64_t digests_offset; /* 0 in format 1 */
	uint64_t digests_xxh3;
};

struct snapshot_old_record {
	uint64_t offset;
	uint64_t xxh3;
	uint64_t mtime_ns;
	uint64_t path_offset; /* in SNAPSHOT_PATHS */
	uint32_t chunk;       /* not used: follows from the sample's number */
	uint32_t record;      /* its place in the chunk */
	uint32_t bytes;
	uint32_t stored_bytes;
	uint32_t mode;
	int32_t class_index; /* not used: follows from path_offset */
	uint16_t path_length;
	uint16_t encoding;
	uint8_t reserved[4];
};

/* A power of two of them, at most three quarters taken. The search for a path starts at slot (hash mod slots)
 * and goes on with the next ones. */
struct snapshot_old_slot {
	uint32_t sample_plus_1; /* 0: free, the search ends */
	uint32_t tag;           /* high half of the path's XXH3-64; the low half chooses the first slot */
};

_Static_assert(offsetof(struct snapshot_old_header, sections) == 96, "stored");
_Static_assert(sizeof(struct snapshot_old_header) == 256, "stored");
_Static_assert(sizeof(struct snapshot_old_record) == 64, "stored");
_Static_assert(sizeof(struct snapshot_old_slot) == 8, "stored");

/* The most slots that a search looks at: the longest run of taken slots is far shorter. */
#define SNAPSHOT_OLD_PROBE_MAX 1024u
