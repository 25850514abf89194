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

/* Finds the chunk's head and samples. 0: data is the chunk as it was packed; -ENODATA: a part was found
 * nowhere, err says which; -errno. Call repair_image_free() in any case. */
int repair_image_make(struct repair *r, const struct broken *b, struct repair_image *image,
		      struct error *err);
/* Makes the file of a compressed image from the intact blocks in this store. Other blocks are compressed
 * again: their bytes may differ from the packed ones, but their content does not. -ENODATA. */
int repair_image_store(struct store *store, struct repair_image *image, struct error *err);
void repair_image_free(struct repair_image *image);
