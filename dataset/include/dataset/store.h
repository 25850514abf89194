/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The object store, which holds the chunks. One op table; an engine is one file (store.c: a directory on a
 * local disk, Lustre, NFS, CephFS). An object is named by its chunk's id alone, so no name can lead
 * elsewhere.
 *
 * An object is written once and atomically, and never changed. Only a damaged object may be replaced, by its
 * original content. Errors name the object. Thread-safe.
 */

#include "dataset/blocks.h"
#include "dataset/chunk.h"
#include "dataset/digest.h"
#include "lib/error.h"

#include <sys/uio.h>

struct external_maker;
struct snapshot_info;
struct store;

struct store_object {
	struct chunk_id id;
	uint64_t bytes;
};

/* A read-only engine implements the first three only; the others are NULL and fail with -EOPNOTSUPP. */
struct store_ops {
	int (*read)(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		    struct error *err);
	void (*describe)(const struct store *s, const struct chunk_id *id, char *text, size_t size);
	void (*free)(struct store *s);
	int (*put)(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		   struct error *err);
	int (*replace)(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		       struct error *err);
	int (*size)(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err);
	int (*list)(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
		    struct error *err);
	int (*remove)(struct store *s, const struct chunk_id *id, struct error *err);
	int (*sweep)(struct store *s, struct error *err);
	int (*take)(struct store *s, struct store *from, const struct chunk_id *id, const struct chunk_id *as,
		    const struct iovec *head, struct error *err);
	int (*sync)(struct store *s, struct error *err);
	int (*read_made)(struct store *s, const struct chunk_id *id, void *buffer, size_t bytes,
			 struct external_maker *ret, struct error *err);
};

struct store {
	const struct store_ops *ops;
};

/* Opens the store of a dataset, with any engine; with create, makes a missing store. */
int store_open(const char *dataset_path, bool create, struct store **ret, struct error *err);
/* dir_fd: the dataset's folder; -errno: it cannot be opened. */
int store_open_at(int dir_fd, const char *dataset_path, bool create, struct store **ret, struct error *err);
void store_free(struct store *s);
/* Wraps a store, so that store_size() and store_read() give the plain form of chunks, whichever form their
 * files have (dataset/blocks.h). All other calls go to the wrapped store. Takes over the store, unless this
 * fails. Remembers the last few chunks. The content of compressed blocks is not checked here: samples have
 * checksums. */
int store_plain_open(struct store *stored, chunk_decode *decode, struct store **ret, struct error *err);
/* Gives the store in which the snapshot's chunks have their plain form: the given one, or store_plain_open()
 * of it. Takes over the store, unless this fails. */
int store_of_snapshot(struct store *stored, const struct snapshot_info *info, chunk_decode *decode,
		      struct store **ret, struct error *err);

/* Writes an object, which is durable when this returns 0. -EEXIST: an object of that id exists. */
int store_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
	      struct error *err);

/* Restores an object that is damaged or missing. It is durable when this returns 0; until then, or on a
 * failure, the old file stays. The caller holds the dataset's writer lock. */
int store_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		  struct error *err);

/* -ENOENT. */
int store_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err);

/* Reads all of [offset, offset + bytes). -ENOENT; -EBADMSG: the object ends before that. */
int store_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
	       struct error *err);

/* As store_read() of the first bytes, and says who made the object that they come from (dataset/external.h).
 */
int store_read_made(struct store *s, const struct chunk_id *id, void *buffer, size_t bytes,
		    struct external_maker *ret, struct error *err);

/* Lists the objects whose id is above `after` (NULL: all), ascending by id. free() the array. */
int store_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
	       struct error *err);

/* -ENOENT. */
int store_remove(struct store *s, const struct chunk_id *id, struct error *err);

/* Removes half-written files of dead writers. The caller holds the dataset's writer lock. */
int store_sweep(struct store *s, struct error *err);

/* Moves a chunk out of another store of the same engine, with another id and its head for that id. The chunk
 * is durable after the next store_sync(). Until then, a crash may leave it in either store, and in the other
 * store with either head. */
int store_take(struct store *s, struct store *from, const struct chunk_id *id, const struct chunk_id *as,
	       const struct iovec *head, struct error *err);
/* Makes the names of objects durable. */
int store_sync(struct store *s, struct error *err);

/* Writes the object's name for an error text. Returns text. */
#define STORE_NAME_MAX 512
char *store_describe(const struct store *s, const struct chunk_id *id, char text[STORE_NAME_MAX]);

/* Computes the digest of a whole object, in its plain form if it is a compressed chunk. Errors as
 * store_size() and store_read(). */
int store_digest(struct store *s, const struct chunk_id *id, struct digest *ret, struct error *err);

/* As chunk_parse_head(); also checks that the chunk has the id in the object's name. */
int store_parse_head(struct store *s, const struct store_object *object, const void *head, size_t head_bytes,
		     struct chunk_view *ret_view, uint64_t *needed, struct error *err);

/* Reads the head of a chunk and checks it as store_parse_head() does. *ret_view points into *ret_head, which
 * the caller frees. */
int store_read_head(struct store *s, const struct chunk_id *id, void **ret_head, struct chunk_view *ret_view,
		    struct error *err);
/* Reads the head of an object of known size, in one read if *likely is at least the head's length. Sets
 * *likely to that length for the next call, as heads of a dataset are similar. *likely is 0 before the first
 * call. */
int store_read_head_of(struct store *s, const struct store_object *object, size_t *likely, void **ret_head,
		       struct chunk_view *ret_view, struct error *err);
