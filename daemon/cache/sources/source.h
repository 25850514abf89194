/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where chunks come from. A load brings one chunk into memory (load.c). It finds the storage that has the
 * chunk, and a copy of it that saves reading it there: the first source in the table that has one.
 *
 * A copy gives nobody a right. The storage opens the chunk first, with all its checks, and reads nothing
 * while the chunk still is what the copy was made of. A chunk that has changed is read. All that comes is
 * verified, and a copy that is late, fails, or is spoilt costs a read from storage.
 *
 * A new source is a file here and a name in CHUNK_SOURCES. All but memory() run on the loop's thread.
 */

#include "daemon/cache/cache.h"

struct chunk_load;

/* In order of preference among sources of one kind; the storage is found first, copies that are near before
 * those that are far. */
#define CHUNK_SOURCES(X) X(carried) X(version) X(staging) X(node) X(bucket) X(file)

enum source_kind {
	SOURCE_NEAR,    /* copies on this node */
	SOURCE_FAR,     /* copies elsewhere: a part of the chunk takes less from storage */
	SOURCE_STORAGE, /* the chunks themselves */
};

enum source_end {
	SOURCE_USED,   /* the chunk is in memory */
	SOURCE_SPOILT, /* what came was not the chunk */
	SOURCE_LEFT,   /* it is needed no longer, and may be under way still when the daemon ends */
	SOURCE_BACK,   /* the load did not begin: everything is as before find() */
};

struct chunk_source {
	enum source_kind kind;
	enum chunk_from from;  /* for who waits for the chunk */
	const char *copied_by; /* copies: for texts, "as staged" */
	/* Returns the source's own state for this load, NULL: it does not have the chunk, or no memory. A
	 * copy's says what the chunk must still be in storage: load_expect(). */
	void *(*find)(struct chunk_load *l, const struct cached_want *want);
	/* A copy's brings the chunk into l->segment: returns 0, and load_brought() follows, never from
	 * within; or 1: it can be had from memory() at once; or a negative errno. A storage's does what
	 * l->read.order says, and calls l->read.done(). */
	int (*begin)(struct chunk_load *l);
	/* Returns the descriptor of the memory that has the chunk, which a worker copies. NULL: begin() has
	 * brought it. Worker thread. */
	int (*memory)(const struct chunk_load *l);
	/* A storage's: whether it is to be asked again, as there is another way to the chunk. Or NULL. */
	bool (*has_other_way)(struct chunk_load *l);
	/* Frees the state. NULL: there is nothing to be freed. */
	void (*end)(struct chunk_load *l, enum source_end how);
};

#define CHUNK_SOURCE_DECLARE(name) extern const struct chunk_source source_##name;
CHUNK_SOURCES(CHUNK_SOURCE_DECLARE)
#undef CHUNK_SOURCE_DECLARE

struct chunk_origin {
	const struct chunk_source *source; /* NULL: none */
	void *state;
};

struct chunk_load {
	struct reader_job read; /* of the storage: its order, and what came of it */
	struct chunk_load *next;
	struct cache *cache;
	struct cached_dataset *dataset;
	uint64_t chunk;
	struct snapshot_chunk meta;
	struct chunk_origin storage, copy;
	struct segment *segment; /* it is brought there, and verified */
	struct segment *lent;    /* where it is copied then; NULL: it stays */
	struct segment *into;    /* has a part of the chunk, which is in use: the rest is added there */
	uint64_t *part;          /* the samples to be read; NULL: all */
	uint64_t read_bytes;     /* what that takes */
	struct job *job;
	struct chunk_place *place; /* of the session that asked */
	uint32_t distance;
	bool is_begun;    /* counted, and in the cache's list */
	bool is_for_peer; /* another node asked for it */
	bool is_repeated;
	uint64_t begin_ns;      /* of what is under way */
	struct load_wait *wait; /* until it is read again; NULL: it does not wait */
	uint32_t n_waits;
	int result;
	struct error error;
	struct pool_task verify;
	struct read_ticket ticket;
};

/* load.c, for the sources. The storage must find the chunk's file with this stamp. */
void load_expect(struct chunk_load *l, const struct access_stamp *known);
/* What begin() began has ended: 0 or a negative errno. The load may be freed. */
void load_brought(struct chunk_load *l, int result);
/* How long to wait for a copy: so many times what reads from storage take, within these bounds. */
uint64_t load_patience_ns(const struct chunk_load *l, double times, uint64_t unknown_ns, uint64_t min_ns,
			  uint64_t max_ns);
/* Of the time since the load began, which several share, its part. */
uint64_t load_share_ns(const struct chunk_load *l);

/* load_verify.c: copies the chunk from memory(), if it is there, verifies it, and hands it over. A worker
 * does it; the result is l->result. */
void load_verify_work(struct pool_task *task);
