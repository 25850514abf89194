/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the files of this folder share. */

#include "dataset/chunk/buffer.h"
#include "dataset/meta.h"
#include "dataset/repair.h"
#include "dataset/snapshot.h"
#include "repair_origin.h"

/* No chunk that a pack makes is longer: it holds several samples, or one of the greatest length. */
#define REPAIR_MAX_BYTES ((uint64_t)CHUNK_SAMPLE_MAX_BYTES + CHUNK_MAX_BYTES)

/* A chunk that verify found fault with, and what is known of it. */
struct broken {
	struct chunk_id id;
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

/* A chunk as it was packed, put together from wherever its parts are. */
struct repair_image {
	unsigned char *data; /* its plain form */
	uint64_t bytes;
	unsigned char *file; /* its file, where that has another form; else NULL */
	uint64_t file_bytes;
	struct chunk_view view; /* of data */
	uint32_t n_samples;     /* from another place than the dataset itself */
	const char *head;       /* NULL: the file's own; else what to call it */
	uint32_t n_lost;        /* samples that are nowhere; passed to options->lost */
	struct buffer names;    /* of the origins that gave something: const char * */
};

/* Finds the chunk's head and samples. 0: data is the chunk as it was packed; -ENODATA: something is nowhere,
 * err says what; -errno. Call repair_image_free() in any case. */
int repair_image_make(struct repair *r, const struct broken *b, struct repair_image *image,
		      struct error *err);
/* Makes the file of an image that is compressed, of the blocks that this store has of it, where they are
 * right: of others the bytes may differ from those that were packed, but not what they hold. -ENODATA. */
int repair_image_store(struct store *store, struct repair_image *image, struct error *err);
void repair_image_free(struct repair_image *image);
