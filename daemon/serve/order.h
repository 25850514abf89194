/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What comes next for a session: the samples of its next batch (head), and the chunks that are needed after
 * these, in the order of dataset/shuffle.h or as the client asks for samples. An order knows nothing of
 * memory, clients or clocks, but where the dataset's chunks are.
 *
 * Use: set what was asked for (dataset, request, subset), order_count(), choose the window, order_begin(),
 * set the shape, order_prepare(); then order_next() and order_look_ahead() for each batch.
 *
 * Loop thread only.
 */

#include "batch.h"
#include "daemon/cache/cached_dataset.h"
#include "client/protocol.h"
#include "dataset/shuffle.h"

struct sharer;

/*
 * What a session can pin or wait for at one time, in bytes of segments: its next batch, and with views also
 * all batches that are not released. Computed from the real sizes of the chunks: a mean says nothing where
 * few samples are most of the bytes. Never more than all chunks.
 */
struct order_shape {
	uint64_t batch_step; /* positions from the start of one batch of this session to its next */
	uint64_t n_chunks;   /* that it visits */
	uint64_t step;       /* positions of a step: all ranks' batches */
	uint64_t lanes;      /* of the order */
	uint64_t n_lanes;    /* that the session's batches have samples of */
	uint32_t batch;
	uint32_t window_chunks;
	uint32_t n_slots;
	bool views; /* ready and held batches pin their chunks */
	bool asked; /* no order: each sample may be in a chunk of its own */
};

/* A batch that the client asked for. */
struct order_asked {
	uint32_t n_samples, ahead; /* ahead: as in struct wire_ask */
	uint64_t samples[WIRE_ASK_SAMPLES];
};

struct epoch_plan {
	uint64_t epoch;
	struct shuffle_plan *plan;
	/* Visits are counted in the order of time, and of the lanes that the session takes samples of alone;
	 * POLICY_NEVER: of another one. NULL: nobody has asked. */
	uint32_t *turns;     /* [window]: how many come before it */
	uint32_t *visits;    /* [chunk]: which one it is */
	uint32_t n_visits;   /* valid where there are turns */
	uint64_t need_bytes; /* of that epoch, and of the edge between it and the other plan's */
};

/* Windows of a lane, in the order of their numbers: the first one that `ahead` does not list, and that is not
 * counted as visited. */
struct order_lane {
	uint64_t listed, visited;
};

/* How fast chunks are used: the last windows count most. */
struct order_pace {
	uint64_t at_ns, wait_ns,
	    visit;              /* at the last window: the time, the client's waits for storage, the visit */
	double visits, used_ns; /* without these waits */
};

/* Chunks in the order they are needed: those of head's windows, then those that are read ahead. */
struct order_ahead {
	uint32_t *chunks;
	uint32_t n, size;
	/* What it was made for: */
	uint64_t epoch;
	uint32_t prefetch;
	bool without_kept;
};

struct order {
	struct cached_dataset *dataset;
	struct sharer *sharer;            /* of the job's nodes; NULL: all is read here */
	struct wire_open_session request; /* with the window in force */
	struct subset *subset;            /* NULL: all samples */
	uint64_t n_samples, n_chunks;     /* that it has, and that these are in */
	uint64_t n_batches,
	    start_batch; /* start_batch: the first one of the request's epoch, where it has a start */
	uint32_t batch;  /* the most items in a batch */
	uint32_t prefetch_chunks; /* to be read ahead: its job's knob, or the daemon's */
	struct order_shape shape;
	bool exact; /* each plan says what its epoch needs */

	uint64_t epoch, index; /* of the batch after head */
	struct batch head;
	bool has_head;
	struct cached_want want;   /* the samples that it needs of its chunks; of one that asks: of head's */
	struct order_asked *asked; /* NULL: it has an order. n_slots of them, batch i at i % n_slots... */
	uint64_t asked_end;        /* ... those from index on, up to this one */
	uint32_t reach;  /* where batches are asked for: chunks behind them that are looked at in any case */
	uint64_t *skips; /* a bit for each chunk that is not to be read here; NULL: there is none */
	struct epoch_plan plans[2];
	struct cached_cursor cursor; /* where it is, while the dataset evicts */
	bool has_cursor;
	uint32_t *chunk_samples; /* of each chunk of the dataset, whether they are in the subset or not */
	uint64_t *samples;       /* head's */
	uint32_t *stamps, stamp;

	struct order_ahead ahead;
	uint64_t *windows_of_head, *windows_of_next; /* space for one a sample of a batch */
	uint32_t n_of_head;
	struct order_lane *lanes;
	struct order_pace pace;
	uint64_t visited_epoch, n_visited; /* n_visited: chunks, of all epochs */
};

/* Counts samples, chunks and batches. -EINVAL: there are too few samples. */
int order_count(struct order *o, struct error *err);
/* Plans the first epoch. */
int order_begin(struct order *o, struct error *err);
/* The shape of a session with so many slots. views: batches pin their chunks until they are given back. */
struct order_shape order_shape(const struct order *o, uint32_t n_slots, bool views);
/* Allocates the next batch, and what may be asked for. The shape is set. -ENOMEM. */
int order_prepare(struct order *o);
/* Frees all of it, the subset too. */
void order_end(struct order *o);

/* Makes the batch that comes next head. Returns false if there is none, or not yet, or without memory. */
bool order_next(struct order *o);
/* Goes on from this batch, or the first one after it that is the session's. */
void order_seek(struct order *o, uint64_t epoch, uint64_t batch);
/* The client asks for a batch. -EPROTO: there is an order, or this is not the next batch, or too much is
 * asked for. */
int order_ask(struct order *o, const struct wire_ask *ask);

/* What is known beside the order: how long the client has waited for storage, and how many of the group's
 * batches from head on are kept, in a row, which need no chunk (group.h). */
struct order_now {
	uint64_t at_ns, waited_ns, kept_run;
};

/*
 * Lists the chunks of the windows of head and of the batches after it, until there are prefetch_chunks more
 * than head's own, or as many as storage needs so as not to be late; into the next epoch, but no further.
 * Windows that no batch of this session touches are left out, and so is what is kept. Also says where head is
 * in the order, if chunks go for others. Nothing happens where batches are asked for.
 */
void order_look_ahead(struct order *o, const struct order_now *now);
/* Where it is in its order matters no longer. */
void order_drop_cursor(struct order *o);
/* Tells the sharer of its lanes. */
void order_join_lanes(struct order *o);
/* Bytes that the epochs which are planned need, where that is exact. */
uint64_t order_need_now(const struct order *o);

static inline bool order_skips(const struct order *o, uint64_t chunk)
{
	return o->skips && o->skips[chunk / 64] >> (chunk % 64) & 1;
}

/* Head has come to the window of this visit, counted over all epochs. */
void order_note_pace(struct order *o, uint64_t visit, const struct order_now *now);
/* How many chunks to list beyond head's own, and how many of those that are listed, own ones included, are to
 * be read. */
uint32_t order_far_most(const struct order *o);
uint32_t order_far_ahead(const struct order *o, uint32_t own);

/* The most in chunks, whatever their order. samples: the number of samples of each chunk that is visited,
 * ascending. cached_largest_bytes() turns it into bytes. */
uint64_t order_need_at_most(const struct order_shape *shape, const uint32_t *samples);

/* The most in one epoch's order. next: the following epoch, whose first batches may be held together with the
 * last of this one (NULL: not known yet). -ENOMEM. */
int order_need_bytes(const struct cached_dataset *d, const struct order_shape *shape,
		     const struct shuffle_plan *plan, const struct shuffle_plan *next, uint64_t *ret_bytes);
