/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Definitions that the writer's files share. */

#include "dataset/chunk/buffer.h"
#include "dataset/chunk_id.h"
#include "dataset/backend.h"
#include "dataset/writer.h"
#include "writer_lock.h"

/* The contents of the store, in id order; the leftovers are the last ones. */
struct writer_found {
	struct store_object *all;
	size_t n;
	size_t n_leftovers;
	size_t n_taken; /* leftovers up to here were adopted or passed over */
};

/* The current run of chunks of one kind, while chunks are replayed. */
struct writer_run {
	uint64_t paths; /* as it began */
	uint64_t records;
	uint32_t flags;
	unsigned n; /* number of runs */
};

/* A layout of samples, and its columns. */
struct writer_layout {
	enum chunk_layout layout;
	struct buffer columns;
};

struct writer {
	char *path; /* the dataset's name as given by the caller */
	struct place *place;
	int dir_fd,
	    parent_fd; /* the dataset's folder, and its parent as long as the folder may be removed again */
	struct writer_lock *lock;   /* NULL elsewhere */
	struct writer_spool *spool; /* NULL: not one of several writers of a folder */
	char *meta_url;             /* or NULL */
	bool made_directory; /* this writer made the directory, and removes it if nothing is committed */
	uint64_t chunk_bytes;
	enum writer_purpose purpose;
	bool keeps_digests;
	struct writer_layout added; /* of samples that are added */
	struct writer_layout known; /* of the dataset's samples */
	bool has_known_layout;      /* the field above is set */
	int level;                  /* compression level of chunks begun from now on; 0: not compressed */
	struct store *store;
	struct meta *meta;
	bool begun; /* the metadata transaction */
	struct meta_info info;
	struct chunk_id_source ids;
	struct chunk_id floor; /* an id below all ids that this writer makes */

	struct writer_found found;

	struct put_queue *queue;
	struct chunk_builder *current; /* builder being filled, or NULL */
	uint32_t current_flags;
	struct external *source; /* source being added, or NULL; its range.part is the next chunk's */
	struct buffer chunks;    /* struct chunk_id: chunks of this commit, ascending */
	bool discards;           /* writer_discard() */
	bool rebuilt;
	bool takes_all; /* a rebuild also takes chunks of no version */
	uint64_t n_foreign;
	progress_callback *progress; /* or NULL */
	void *progress_context;

	/* For the snapshot of this commit, while chunks are replayed: either builder or changes. */
	struct snapshot_builder *builder;
	struct snapshot_changes *changes;
	struct buffer drops; /* struct chunk_id: what the commit removes, in this order */
	uint64_t keep_from;  /* the oldest version that can be read from this commit on; 0: as before */

	uint64_t n_kept; /* number of the newest versions whose snapshots are kept */

	char command[CHANGE_COMMAND];
	struct change change; /* counted while chunks are replayed */
	struct writer_run run;
};

static inline struct columns writer_columns(const struct buffer *b)
{
	return (struct columns){b->data, b->bytes};
}

/* writer_add.c: the queue of chunks for a store. Its own threads put them; one thread calls. */
/* Creates a queue. store and lock_file are borrowed. Once the lock is lost, nothing is written. */
int put_queue_new(struct store *store, struct writer_lock *lock_file, uint64_t chunk_bytes,
		  struct put_queue **ret, struct error *err);
/* Drops chunks that are not written yet. */
void put_queue_free(struct put_queue *q);
/* Hands the last chunk in, and waits until all chunks are durable. */
int writer_settle(struct writer *w, struct error *err);
/* Call it after writer_settle(). Returns false if that chunk was not put with a digest. */
bool put_queue_digest(const struct put_queue *q, const struct chunk_id *id, struct digest *ret);
/* Takes the layout of a sample or chunk that is added. The first one decides for the dataset. -EEXIST. */
int writer_take_layout(struct writer *w, enum chunk_layout layout, struct columns columns, struct error *err);

/* Returns the version of the snapshot; 0: there is none that can be read. */
uint64_t writer_snapshot_version(const struct writer *w);

/* Frees builder and changes. */
void writer_end_snapshot(struct writer *w);

/* Returns the oldest version that can be read once `version` is the newest. */
int writer_find_oldest(struct writer *w, uint64_t version, uint64_t *ret, struct error *err);

/* Retained snapshots of a dataset in a folder. writer_keep_published() keeps the newest snapshot, if a failed
 * writer or an older program has not. writer_keep_staged() keeps the staged one, whose version is committed.
 * writer_trim_retained() removes those that are too many or too old. */
void writer_keep_published(const struct writer *w);
int writer_keep_staged(struct writer *w, uint64_t version, struct error *err);
/* Copies a file to the staged snapshot. -errno. */
int writer_stage_copy(const struct writer *w, int from);
int writer_trim_retained(const struct writer *w, uint64_t newest, struct backend_keep keep,
			 struct error *err);

/* Checks that the dataset is not frozen. -EROFS: the dataset is frozen, and this writer is no rebuild;
 * -EBUSY: it was frozen after the metadata were opened. */
int writer_check_frozen(const struct writer *w, struct error *err);

/* A writer's own folder for chunks, DATASET/.shared/ID, which it has locked. writer_spool_join() waits for
 * the dataset's lock, begins the transaction, and takes the chunks into the commit; without a spool, or the
 * second time, it does nothing. writer_sweep_spools() removes the folders of dead writers. */
int writer_spool_join(struct writer *w, struct error *err);
void writer_sweep_spools(int dir_fd, const char *path);
#define WRITER_SPOOLS ".shared"

/* Removes leftovers that nobody adopted. */
int writer_drop_leftovers(struct writer *w, struct error *err);

/* Lists the store's chunks again. */
int writer_list(struct writer *w, struct error *err);
