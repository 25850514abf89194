/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the steps of building a snapshot share: snapshot_build.c takes paths in and writes them in tree order,
 * snapshot_records.c what stands in storage order, snapshot_index.c the hash index. */

#include "section_writer.h"
#include "snapshot_build.h"
#include "spill_sort.h"

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
	uint64_t n_added;
	progress_callback *progress; /* or NULL */
	void *progress_context;
	uint64_t n_done, n_steps;
	int fd;
	struct snapshot_header header;
	uint64_t end; /* of what is written */
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

/* One path of a pass over all of them is done. */
void builder_step(struct snapshot_builder *b);

/* Begins the section behind what is written, and ends it. Errors as section_begin() and section_end(). */
int builder_begin_section(const struct snapshot_builder *b, struct section_writer *w);
int builder_end_section(struct snapshot_builder *b, struct section_writer *w, enum snapshot_section section);

/* Writes records and times, and drops chunks without live samples. -errno. */
int builder_write_records(struct snapshot_builder *b);
/* What `names` is. -ENOMEM. */
int builder_new_names(int dir_fd, size_t budget, struct spill_sort **ret);
/* Writes the hash index. -EEXIST, -E2BIG: err says why; else -errno, and err is as it was. */
int builder_write_index(struct snapshot_builder *b, struct error *err);
