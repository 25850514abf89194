/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Changes a dataset: adds, replaces and deletes samples. writer_commit() makes all of it visible at once;
 * until then, and after a crash, readers see the version before.
 *
 * Chunks are written as they fill, and stay when the writer is interrupted. The next writer may adopt them,
 * one by one, before it adds anything; in a folder, its commit drops those that it did not adopt.
 *
 * A dataset in a folder has one writer at a time, as long as that gives signs of life. Elsewhere, of several
 * writers that began with one version, the first to commit wins. The others' commits fail with -EBUSY and
 * change nothing. So do those of a writer from which another one took over. Not thread-safe; the writer's own
 * threads write the chunks and give the signs of life.
 */

#include "dataset/chunk_builder.h"
#include "dataset/meta.h"
#include "dataset/store.h"
#include "lib/progress.h"

#include <sys/stat.h>
#include <sys/types.h>

struct writer;

enum writer_purpose {
	WRITER_PACK, /* creates the dataset if it is missing */
	/* As WRITER_PACK, for one of several processes that write to a folder at the same time. The writer
	 * has a folder of its own for its chunks, DATASET/.shared/ID, and takes the dataset's lock only when
	 * writer_commit() waits for it. The commit gives each chunk an id above all of the dataset's, and
	 * moves it to the others. Until then the writer has no metadata, store or leftovers, and
	 * writer_info() is all 0. A commit removes the folders of dead writers. Elsewhere than in a folder,
	 * this is WRITER_PACK. */
	WRITER_SHARE,
	WRITER_COPY, /* as WRITER_PACK; chunks may have any id, and all that the metadata lacks are leftovers
		      */
	WRITER_CHANGE,  /* the dataset exists */
	WRITER_REBUILD, /* for writer_rebuild(): creates missing metadata, and puts damaged metadata aside */
};

/* chunk_bytes: CHUNK_MIN_BYTES .. CHUNK_MAX_BYTES. -EBUSY: there is another writer; -ENOTEMPTY: the directory
 * is neither a dataset nor empty; -ESTALE: the dataset lost its metadata (run rebuild). */
int writer_open(const char *dataset_path, enum writer_purpose purpose, uint64_t chunk_bytes,
		struct writer **ret, struct error *err);
/* As writer_open(), for a dataset whose metadata is to be on a Redis server. meta_url NULL: where the
 * metadata is now, or in meta.db. */
int writer_open_on(const char *dataset_path, enum writer_purpose purpose, uint64_t chunk_bytes,
		   const char *meta_url, struct writer **ret, struct error *err);

/* The writer that changes a dataset in a folder, and the time of its last sign of life. */
#define WRITER_SIGN_HOST 65
#define WRITER_SIGN_NAME (WRITER_SIGN_HOST + 40)
struct writer_sign {
	pid_t pid; /* on that host; 0: not known */
	char host[WRITER_SIGN_HOST];
	uint64_t lease_ns; /* the writer gives several signs of life in this time */
	bool is_kept;      /* true: no other writer can take over */
	/* For comparisons. */
	dev_t device;
	ino_t inode;
	struct timespec renewed;
};
/* Returns true if a writer is at work. */
bool writer_at_work(const char *dataset_path, struct writer_sign *ret);
/* Formats the writer's name, such as "process 12 on node1". Returns text. */
char *writer_sign_name(const struct writer_sign *s, char *text, size_t size);
/* Returns true if there was a sign of life between the two, or the writer is another one. */
bool writer_sign_is_new(const struct writer_sign *now, const struct writer_sign *before);
/* Takes the dataset from a writer that gave no sign of life for the whole lease, by the caller's clock. That
 * writer can publish nothing any more. -EAGAIN: it gave a sign meanwhile, is publishing, or has ended. */
int writer_take_over(const char *dataset_path, const struct writer_sign *seen, struct error *err);

/* Waits while another writer of a folder is at work, and takes over from one that gives no sign of life. The
 * callbacks may be NULL. `waits` is called once, before the first pause, and `taken` after an attempt to take
 * over, with its result and error. Returns false if a signal interrupts a pause. */
struct writer_wait {
	const char *dataset;
	uint64_t until_ns; /* of the monotonic clock */
	uint64_t poll_ns;  /* longest pause between two looks */
	void (*waits)(const struct writer_sign *sign, uint64_t left_ns, void *context);
	void (*taken)(const struct writer_sign *sign, int r, const struct error *why, void *context);
	void *context;
};
bool writer_wait(const struct writer_wait *w);
/* Sleeps for a random time, a quarter of this time at least, so that writers that collided do not collide
 * again. Returns false if a signal interrupts it. */
bool writer_pause(uint64_t most_ns);

/* Sets the text of this commit in the dataset's log: the command that made it, without secrets. Control
 * characters are made printable, and a long text is cut. Default: the program's name. */
void writer_set_command(struct writer *w, const char *command);

/* Reports the progress of writer_rebuild(), writer_commit() and writer_snapshot() to the callback. */
void writer_show(struct writer *w, progress_callback *progress, void *context);

/* Drops uncommitted changes, and removes a dataset that this writer made but never wrote to. */
void writer_free(struct writer *w);
static inline void writer_freep(struct writer **w)
{
	writer_free(*w);
}

/* Makes writer_free() also remove the chunks that this writer wrote, unless it has committed: for chunks that
 * no later writer could use. Elsewhere than in a folder another writer may have adopted them: there they stay
 * as leftovers. */
void writer_discard(struct writer *w);

/* Gives metadata and snapshot a SHA-256 of each chunk's file from this commit on, to detect changes by people
 * who may write chunks but not the snapshot. A dataset that has digests keeps them without this call. Call it
 * before the first writer_add(), or before writer_rebuild(): only that can give digests to existing chunks.
 * -EEXIST: there are chunks without digests; err says what to run. */
int writer_keep_digests(struct writer *w, struct error *err);

/* Compresses chunks that are begun from now on with this level (compress.h), as far as that is worth it; 0,
 * the default: does not compress. */
void writer_compress(struct writer *w, int level);

/* Sets the layout of samples that are added from now on, and its columns, of which the writer takes a copy;
 * default: plain. -EEXIST: the dataset has samples of another layout or other columns; err says so.
 * writer_add() also returns this error, and writer_commit() for adopted chunks. */
int writer_set_layout(struct writer *w, enum chunk_layout layout, struct columns columns, struct error *err);
/* As writer_set_layout(), as the chunk has them, whose head is in memory. */
int writer_set_layout_of(struct writer *w, const struct chunk_header *header, struct error *err);
/* Returns the layout of samples that are added. */
enum chunk_layout writer_layout(const struct writer *w);
/* Returns 1 and the layout of the dataset's samples, or 0 if it never had one. -errno of the metadata. */
int writer_known_layout(struct writer *w, enum chunk_layout *ret, struct error *err);

/* Return the state that this writer found, and the metadata and the store for lookups. All are borrowed. */
const struct meta_info *writer_info(const struct writer *w);
struct meta *writer_meta(const struct writer *w);
struct store *writer_store(const struct writer *w);

/* Returns the complete chunks that an interrupted writer left, in id order. Borrowed. */
const struct store_object *writer_leftovers(const struct writer *w, size_t *ret_n);
/* Takes leftover i into this commit. Call it in ascending order, before the first writer_add(). */
int writer_adopt(struct writer *w, size_t i, struct error *err);

/* Returns the chunks of this commit that were handed to the store so far, in id order. Borrowed until the
 * next call. */
const struct chunk_id *writer_chunks(const struct writer *w, size_t *ret_n);

/* Adds a sample, whose data is copied. Replaces an existing sample of this path. */
int writer_add(struct writer *w, const struct chunk_sample *sample, struct error *err);

/* Add the samples of a source, which stays where it is (external.h), in ascending order of their offsets. The
 * source's range is set by these functions; its length and time are the caller's (external_stat()). */
int writer_begin_source(struct writer *w, const struct external *source, struct error *err);
int writer_add_range(struct writer *w, const struct chunk_sample *sample, struct error *err);
int writer_end_source(struct writer *w, struct error *err);

/* Deletes a path, which need not exist. */
int writer_delete(struct writer *w, const char *path, size_t path_length, struct error *err);

/* Makes the commit remove this chunk, for a purge. No version from writer_keep_from() on needs it. The files
 * are removed after the commit, in the order of these calls. */
int writer_drop_chunk(struct writer *w, const struct chunk_id *id, struct error *err);
void writer_keep_from(struct writer *w, uint64_t version);
/* Removes the chunks that a purge left when it died after its commit. Call before the first writer_adopt().
 */
int writer_finish_drops(struct writer *w, struct error *err);

/* Sets how many of the newest versions keep their snapshots after this commit, so that jobs can continue with
 * them (dataset/ snapshot_retained.h); n >= 1. Default: */
#define WRITER_KEEP_SNAPSHOTS 4
void writer_keep_snapshots(struct writer *w, uint64_t n);

/* Keeps the snapshot of an earlier version, which was rebuilt (version.h): the file behind fd. The next
 * commit may drop it like any other. -ENOENT: the version was purged meanwhile; -EOPNOTSUPP: elsewhere, or
 * the file system has no hard links. */
int writer_keep_version(struct writer *w, uint64_t version, int fd, struct error *err);

/* Hands the samples added so far to the store as a partly filled chunk. */
int writer_flush(struct writer *w, struct error *err);

struct writer_result {
	uint64_t version;   /* the previous version if there was nothing to commit */
	uint64_t n_chunks;  /* chunks of this commit (rebuild: all chunks) */
	uint64_t n_paths;   /* paths of the dataset after the commit */
	uint64_t n_foreign; /* rebuild: chunks left out because no version has them */
};

/* Makes everything durable and visible. A failure changes nothing, except -ESTALE: the change is committed,
 * but the snapshot could not be replaced (err says so). */
int writer_commit(struct writer *w, struct writer_result *ret, struct error *err);

/* Drops the metadata and replays all chunks of the store in id order; writer_commit() makes the result
 * durable. Chunks with a damaged head are left out, counted, and passed to `lost`. Elsewhere than in a
 * folder, if the metadata can be read, chunks unknown to it are left out, too, unless writer_take_all() was
 * called: other writers may be about to publish or remove them. */
void writer_take_all(struct writer *w);
typedef void writer_lost_callback(const struct chunk_id *id, const char *text, void *context);
int writer_rebuild(struct writer *w, writer_lost_callback *lost, void *context, uint64_t *ret_n_lost,
		   struct error *err);

/* Removes the metadata: the dataset is read only by its snapshots (frozen.h) until a rebuild. Leftovers of an
 * interrupted writer are removed first. Nothing may have been added; afterwards the writer can only be freed.
 * -EOPNOTSUPP: elsewhere there is nothing to gain; -ENODATA: nothing was ever packed. */
int writer_freeze(struct writer *w, struct error *err);

/* Prevents other writers from taking over from here on: for changes to chunks before a commit that must be
 * done as a whole. -EBUSY: another writer took over. */
int writer_hold(struct writer *w, struct error *err);

/* Writes the snapshot of the current version again, without a commit. -ENODATA: nothing was ever packed. */
int writer_snapshot(struct writer *w, struct error *err);
/* Publishes a commit of an earlier writer that died before it published. writer_commit() does so, too, even
 * without a change. */
int writer_catch_up(struct writer *w, struct error *err);
