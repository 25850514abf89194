/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the files of the snapshot builder share. snapshot_build.c collects the paths, and writes
 * them in tree order, the hash index, and the parts in storage order. */

#include "dataset/checksum/checksum.h"
#include "dataset/chunk/buffer.h"
#include "dataset/lookup/snapshot_format.h"
#include "snapshot_build.h"
#include "spill_sort.h"

/* Writes a section of a snapshot from its beginning to its end. {.fd = -EBADF} is a writer that was not
 * begun. Not thread-safe. */
struct section_writer {
	int fd; /* borrowed */
	uint64_t offset, bytes;
	struct buffer block;
	struct checksum_stream *sum;
};

/* Begins at the first offset >= `offset` where a section may begin. -ENOMEM. */
int section_begin(struct section_writer *w, int fd, uint64_t offset);
/* Adds bytes to the section. -ENOMEM, -errno of the file. */
int section_add(struct section_writer *w, const void *data, size_t bytes);
void section_free(struct section_writer *w);

struct snapshot_builder {
	int dir_fd;
	size_t budget;
	struct buffer chunks;       /* struct snapshot_chunk_entry */
	struct buffer digests;      /* struct digest of each chunk; or empty */
	struct spill_sort *paths;   /* struct path_entry and path, in tree order */
	struct spill_sort *stored;  /* key: chunk and place in it; struct stored_entry */
	struct spill_sort *names;   /* key: a path's hash; its sample, or NAME_IS_DIRECTORY | its path word */
	struct spill_sort *tree;    /* key: place in tree order; its sample */
	struct spill_sort *classes; /* key: number; struct snapshot_class */
	enum chunk_layout layout;
	struct columns columns;
	uint64_t n_added;
	progress_callback *progress; /* or NULL */
	void *progress_context;
	uint64_t n_done, n_steps;
	int fd;
	struct snapshot_header header;
	uint64_t end; /* end of the written data */
};

#define NAME_IS_DIRECTORY (UINT64_C(1) << 63)

struct stored_entry {
	struct snapshot_record record;
	uint64_t mtime_ns;
	uint64_t hash;
	uint64_t tree_place;
};

static inline struct snapshot_chunk_entry *builder_chunks(const struct snapshot_builder *b)
{
	return (struct snapshot_chunk_entry *)b->chunks.data;
}

static inline size_t builder_n_chunks(const struct snapshot_builder *b)
{
	return b->chunks.bytes / sizeof(struct snapshot_chunk_entry);
}

static inline uint64_t builder_path_word(uint64_t offset, size_t length)
{
	return offset | (uint64_t)length << SNAPSHOT_PATH_OFFSET_BITS;
}

static inline struct snapshot_record builder_record(uint64_t xxh3, uint32_t bytes, uint64_t offset,
						    uint16_t mode, uint64_t path_word)
{
	return (struct snapshot_record){
	    .xxh3 = xxh3,
	    .stored = bytes | offset << SNAPSHOT_BYTES_BITS | (uint64_t)(mode >> 12) << 60,
	    .path = path_word | (uint64_t)(mode & 07777) << 52,
	};
}

static inline void builder_count_sample(struct snapshot_header *h, uint32_t bytes)
{
	h->n_samples++;
	h->total_bytes += bytes;
	h->max_bytes = bytes > h->max_bytes ? bytes : h->max_bytes;
}

static inline void builder_count_name(struct snapshot_header *h, struct path_text path)
{
	if (h->names != SNAPSHOT_NAMES_OTHERS)
		h->names = snapshot_name_is_image(path.text, path.length) ? SNAPSHOT_NAMES_IMAGES
									  : SNAPSHOT_NAMES_OTHERS;
}

/* Begins the file. All chunks and digests were added before. */
void builder_begin(struct snapshot_builder *b, const struct snapshot_target *target);
/* Ends the file. All sections were written before. -errno. */
int builder_write_header(struct snapshot_builder *b);
/* Writes a section as a whole. Errors as section_begin() and section_end(). */
int builder_write_section(struct snapshot_builder *b, enum snapshot_section section,
			  const struct buffer *from);
/* Writes the chunk table with the columns, and the digests. Errors as builder_write_section(). */
int builder_write_tables(struct snapshot_builder *b);

/* Begin a section after the written data, and end it. Errors as section_begin() and section_end(). */
int builder_begin_section(const struct snapshot_builder *b, struct section_writer *w);
int builder_end_section(struct snapshot_builder *b, struct section_writer *w, enum snapshot_section section);

/* Writes the places and times of a chunk's samples, and stores their offset in the chunk's entry. -EOVERFLOW,
 * -errno. */
int builder_add_times(struct snapshot_chunk_entry *c, struct section_writer *times,
		      const struct buffer *places /* uint32_t */, const struct buffer *mtimes /* uint64_t */);
