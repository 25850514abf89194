/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files that bring a chunk into memory share. */

#include "daemon/cache/cache.h"
#include "daemon/cluster/cluster.h"

struct sharer;

struct load {
	struct reader_job read;
	struct load *next;
	struct cache *cache;
	struct cached_dataset *dataset;
	uint64_t chunk;
	struct snapshot_chunk meta;
	struct segment *segment; /* read into, and verified there */
	struct segment *lent;    /* where it is copied then; NULL: it stays */
	struct segment *into;    /* has a part of the chunk, which is in use: the rest is added there */
	uint64_t *part;          /* the samples to be read; NULL: all */
	uint64_t read_bytes;     /* what that takes */
	struct segment *carried; /* from before a restart: copied from there if the file is still the same */
	struct staged *staged;   /* on the staging disk: read from there if the file is still the same */
	struct stage_read fetch; /* from there */
	struct sharer *sharer;   /* another node has it: asked of it when the file may be read; NULL: none */
	struct cluster_read ask; /* of that node */
	bool is_asking;          /* counted: it is, or is about to be */
	bool is_for_peer;        /* another node asked for it */
	bool is_warm;            /* nobody wants it yet */
	void (*asked)(struct load *l, int result);
	bool shares; /* another version has it: copied from there if the file is still the same */
	struct access_stamp shared_stamp; /* which it had then */
	struct cached_dataset *sibling;   /* that version, while it is copied: the chunk is pinned there */
	uint64_t sibling_chunk;
	int sibling_fd; /* of its memory, borrowed */
	bool copies;    /* the file is the same: the chunk comes from where it is known */
	uint32_t distance;
	struct job *job;
	struct place *own, *place; /* that of the session that asked; the one tried now */
	uint64_t n_places;         /* when the search through them began */
	uint64_t begin_ns;
	bool repeated;
	struct load_wait *wait; /* until it is read again; NULL: it does not wait */
	uint32_t n_waits;
	int result;
	struct error error;
	struct pool_task verify;
	struct read_ticket ticket;
	const char *origin; /* for texts */
};

/* chunk_known.c: the chunk is somewhere already, where it need not be read from storage. */
bool load_is_known(const struct load *l);
/* Looks for another version of the dataset that has it in memory. Nothing is held while the chunk's file is
 * opened, which may take as long as its storage likes. */
bool load_note_shared(struct cache *c, struct load *l, const struct cached_dataset *d);
/* Pins it there, for the time of a copy. Returns false if it has gone meanwhile, or was read from another
 * file. */
bool load_hold_shared(struct load *l);
/* What was known is no longer needed: it was used, or the chunk comes from storage. */
void load_drop_known(struct load *l);
/* What a file must be for what is known to be of it. */
void load_order_known(struct load *l);
/* For a text: where it comes from, and what becomes of it now. */
const char *load_known_format(const struct load *l);

/* chunk_verify.c: copies what is in memory here, verifies it, and hands it over. A worker does it; the result
 * is l->result. */
void load_verify_work(struct pool_task *task);

/* chunk_peer.c: it is asked of another node of the job's, if that is its owner. */
void load_note_peer(struct load *l, const struct cached_want *want);
/* Asks it; done() goes on. Negative: it cannot be asked. */
int load_ask(struct load *l, void (*done)(struct load *l, int result));
void load_end_asking(struct load *l);
/* What came was not the chunk. */
void load_peer_spoilt(struct load *l);
