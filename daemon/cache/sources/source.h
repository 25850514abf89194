/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sources of chunks. A load brings one chunk into memory (load.c). It chooses the storage that has the chunk,
 * and the first source in the table with a copy that saves reading it from there.
 *
 * A copy grants no right. The storage opens the chunk first, with all checks, and reads nothing if the
 * chunk's stamp is still that of the copy. A chunk that has changed is read. All data is verified, and a copy
 * that is late, fails, or is spoilt costs a read from storage.
 *
 * A new source is a file here and a name in CHUNK_SOURCES. All functions but memory() run on the loop thread.
 */

#include "daemon/cache/cache.h"

struct chunk_load;

/* All sources, in order of preference among sources of one kind. A load chooses the storage first, then
 * copies on this node, then copies elsewhere. */
#define CHUNK_SOURCES(X) X(restored) X(version) X(staging) X(node) X(bucket) X(file)

enum source_kind {
	SOURCE_NEAR,    /* copies on this node */
	SOURCE_FAR,     /* remote copies: reading a part of the chunk from storage is cheaper */
	SOURCE_STORAGE, /* the chunks themselves */
};

enum source_end {
	SOURCE_USED,   /* the chunk is in memory */
	SOURCE_SPOILT, /* the data failed verification */
	SOURCE_LEFT,   /* no longer needed; may still be in progress when the daemon ends */
	SOURCE_BACK,   /* the load did not begin: everything is as before find() */
};

struct chunk_source {
	enum source_kind kind;
	enum chunk_from from;  /* reported to sessions that wait for the chunk */
	const char *copied_by; /* copies: name in messages, such as "a staged copy" */
	/* Returns the source's own state for this load. NULL: it does not have the chunk, or no memory. A
	 * copy's find() must call load_expect(): the stamp that the chunk must still have in storage. */
	void *(*find)(struct chunk_load *l, const struct cached_want *want);
	/* Copies: brings the chunk into l->segment. Returns 0: load_brought() follows, never from within
	 * this call. Returns 1: memory() has the chunk now. Or a negative errno. Storages: executes
	 * l->read.order, and calls l->read.done(). */
	int (*begin)(struct chunk_load *l);
	/* Returns the descriptor of the memory that has the chunk, from which a worker copies. NULL: begin()
	 * has brought the chunk. Worker thread. */
	int (*memory)(const struct chunk_load *l);
	/* Storages: returns true to be asked again, because there is another way to the chunk. May be
	 * NULL. */
	bool (*has_other_way)(struct chunk_load *l);
	/* Frees the state. NULL: nothing to free. */
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
	struct reader_job read; /* the storage's order and result */
	struct chunk_load *next;
	struct cache *cache;
	struct cached_dataset *dataset;
	uint64_t chunk;
	struct snapshot_chunk meta;
	struct chunk_origin storage, copy;
	struct segment *segment; /* segment into which the chunk is read and verified */
	struct segment *mapped;  /* segment to which the verified chunk is copied; NULL: it stays */
	struct segment *into;    /* segment with a part of the chunk in use, to which the rest is added */
	uint64_t *part;          /* the samples to be read; NULL: all */
	uint64_t read_bytes;     /* bytes to read for these samples */
	struct job *job;
	struct chunk_place *place; /* place of the session that requested it */
	uint32_t distance;
	bool is_begun;    /* counted, and in the cache's list of loads */
	bool is_for_peer; /* requested by another node */
	bool is_repeated;
	uint64_t begin_ns;      /* start of the current step */
	struct load_wait *wait; /* wait before the next read; NULL: not waiting */
	uint32_t n_waits;
	int result;
	struct error error;
	struct pool_task verify;
	struct read_ticket ticket;
};

/* load.c, for the sources. Sets the stamp that the chunk's file must still have for the copy to be used. */
void load_expect(struct chunk_load *l, const struct access_stamp *known);
/* Reports the end of an operation that begin() started: 0 or a negative errno. May free the load. */
void load_brought(struct chunk_load *l, int result);
/* Returns how long to wait for a copy: `times` the median read from storage, within these bounds; unknown_ns
 * before the first read. */
uint64_t load_patience_ns(const struct chunk_load *l, double times, uint64_t unknown_ns, uint64_t min_ns,
			  uint64_t max_ns);
/* Returns the time since the load began divided by the number of loads being read. */
uint64_t load_share_ns(const struct chunk_load *l);
