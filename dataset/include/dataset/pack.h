/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Packs a folder of files into a dataset, or the samples of another dataset, for `dieselctl pack`.
 *
 * An existing dataset stays as it was until the commit at the end. A later run uses the chunks that an
 * interrupted run has written. A chunk counts as done if each of its files is in the source with the same
 * size and modification time, and both runs rewrite files, or neither does.
 */

#include "dataset/chunk.h"
#include "dataset/survey.h"
#include "lib/error.h"
#include "lib/progress.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pack_order {
	PACK_ORDER_RANDOM, /* a permutation drawn from the seed: each chunk is a fair sample of the dataset */
	PACK_ORDER_SOURCE, /* tree order: folder by folder */
};

/* Rewrites a file before it is packed. If *ret is set (memory from malloc()), its bytes are packed instead.
 * Returns a code of its own, >= 0, or -errno, with which the file fails. Called by several threads at once.
 */
typedef int pack_rewriter(const void *data, size_t bytes, void **ret, size_t *ret_bytes,
			  struct error *ret_note);

/* Result of the rewriter for one file. */
struct pack_rewritten {
	int result;
	const char *path; /* in the source, for messages */
	uint64_t source_bytes, bytes;
	const struct error *note;
};

struct pack_options {
	const char *source; /* used only by pack_run() */
	const char *dataset;
	const char
	    *meta_url; /* a Redis server for the metadata, or NULL: as the dataset has it, or meta.db */
	uint64_t chunk_bytes;
	enum pack_order order;
	uint64_t seed;
	unsigned n_threads;  /* threads that read the source, >= 1 */
	const char *command; /* command for the log (writer_set_command()), or NULL */
	bool shared;         /* with append: one of several writers of a folder (WRITER_SHARE); takes all
				files */
	bool append; /* add to a dataset that has samples; files that it has already (same size and mtime) are
			left out */
	bool skip_unreadable;
	struct survey *survey;    /* in: options for what is packed; out: what was found */
	uint64_t keep_snapshots;  /* writer_keep_snapshots(); 0: its default */
	bool keep_digests;        /* writer_keep_digests() */
	int level;                /* writer_compress() */
	enum chunk_layout layout; /* writer_set_layout(); CHUNK_N_LAYOUTS: the caller calls it */
	struct columns columns;   /* of the layout; borrowed */
	pack_rewriter *rewrite;   /* NULL: files are packed as they are */

	/* All may be NULL. */
	progress_callback *progress;
	void (*skipped)(const char *text, void *context); /* a file that skip_unreadable left out */
	void (*rewritten)(const struct pack_rewritten *file, void *context);
	bool (*cancelled)(void *context); /* called before each file; true ends the pack with -ECANCELED */
	void *context;
};

struct pack_result {
	uint64_t n_files; /* packed by this run */
	uint64_t bytes;
	uint64_t n_chunks;    /* chunks of this commit */
	uint64_t n_unchanged; /* with append: files that were in the dataset already */
	uint64_t n_resumed;   /* files packed by an earlier, interrupted run */
	uint64_t n_skipped;   /* unreadable */
	uint64_t n_other;     /* FIFOs, sockets, devices */
	uint64_t n_alike;     /* of an archive: files named as the file before, up to the first dot */
	uint64_t version;     /* version of the dataset after the pack */
};

/* Opens a dataset for samples that are added one by one: writer_add(), writer_commit(), or writer_discard(),
 * and writer_free(). It uses these options: dataset, meta_url, chunk_bytes, command, append, shared,
 * keep_digests and level. Errors as writer_open(); -EEXIST: the dataset has samples and append is not set. */
struct writer;
int pack_open(const struct pack_options *options, struct writer **ret, struct error *err);
/* Commits a writer of pack_open(), as writer_commit(). If another writer has published to the bucket since,
 * continues from that version, up to 16 times. Then *w is a new writer, or NULL after a failure. Chunks newer
 * than the other writer's last chunk are used as they are; the others are read from the store and written
 * again. */
struct writer_result;
int pack_commit(const struct pack_options *options, struct writer **w, struct writer_result *ret,
		struct error *err);
/* Returns 1 if the dataset has this sample already: bytes, mode and time. */
struct chunk_sample;
int pack_has(struct writer *w, const struct chunk_sample *sample, struct error *err);

/* Errors as pack_open(); -ENODATA: the source has no files. */
int pack_run(const struct pack_options *options, struct pack_result *ret, struct error *err);
