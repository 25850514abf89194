/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The order of a session: the samples of its next batch (head), and the chunks that are needed after it. The
 * order comes from dataset/shuffle.h, or from the client, which requests samples. An order does not depend on
 * memory, clients or clocks, except for where the dataset's chunks are.
 *
 * Use: set the dataset, request and subset, order_open(), order_need() for as many slots as fit,
 * order_start(); then order_next() and order_look_ahead() for each batch.
 *
 * Loop thread only.
 */

#include "batch.h"
#include "daemon/cache/cached_dataset.h"
#include "client/protocol.h"
#include "dataset/shuffle.h"

struct membership;
struct serving_options;

/*
 * Parameters that decide how much a session can pin or wait for at one time, in bytes of segments: its next
 * batch, and with views also all batches that are not released. The need is computed from the real chunk
 * sizes, because a mean misleads if few samples make up most of the bytes. It is at most all chunks.
 */
struct order_shape {
	uint64_t batch_step; /* positions from the start of one batch of this session to its next */
	uint64_t n_chunks;   /* number of chunks that the session visits */
	uint64_t step;       /* number of positions in a step: the batches of all ranks */
	uint64_t lanes;      /* number of lanes in the order */
	uint64_t n_lanes;    /* number of lanes from which the session's batches take samples */
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
	/* Visits are numbered in chronological order. Only those in lanes from which the session takes
	 * samples count; POLICY_NEVER: in another lane. NULL: not computed yet. */
	uint32_t *turns;     /* [window]: number of visits before it */
	uint32_t *visits;    /* [chunk]: number of its visit */
	uint32_t n_visits;   /* valid if turns is set */
	uint64_t need_bytes; /* for that epoch, including the transition to the next one if that is planned */
};

/* Progress in the windows of a lane: `ahead` lists windows below `listed`; those below `visited` are counted
 * as visited. */
struct order_lane {
	uint64_t listed, visited;
};

/* Measured pace at which chunks are used. Recent windows count most. */
struct order_pace {
	uint64_t at_ns, wait_ns, visit; /* at the last window: time, client's total wait for storage, visit */
	double visits, used_ns;         /* used_ns: excluding these waits */
};

/* Chunks in the order they are needed: those of head's windows, then those that are read ahead. */
struct order_ahead {
	uint32_t *chunks;
	uint32_t n, size;
	/* Inputs that the list was made for: */
	uint64_t epoch;
	uint32_t prefetch;
	bool without_kept;
};

struct order {
	struct cached_dataset *dataset;
	struct membership *membership;    /* the job's other nodes; NULL: this node reads everything */
	struct wire_open_session request; /* request with the window in force */
	struct subset *subset;            /* NULL: all samples */
	uint64_t n_samples, n_chunks;     /* samples to serve, and chunks that hold them */
	uint64_t n_batches, start_batch;  /* start_batch: with a start, first batch of the request's epoch */
	uint32_t batch;                   /* maximum items in a batch */
	uint32_t prefetch_chunks;         /* chunks to prefetch: its job's knob, or the daemon's */
	struct order_shape shape;
	bool exact; /* reserve the exact need_bytes of each epoch's plan, not the worst case */

	uint64_t epoch, index; /* epoch and index of the batch after head */
	struct batch head;
	bool has_head;
	struct cached_want want;   /* samples needed of the chunks; of head's if the client asks */
	struct order_asked *asked; /* ring of the batches that the client asked for: batch i at i % n_slots;
				      NULL: the epoch's order decides */
	uint64_t asked_end;        /* the ring holds the batches index <= i < asked_end */
	uint32_t reach;            /* if batches are asked for: minimum number of later chunks to consider */
	uint64_t *skips; /* bit per chunk, set for a chunk that must not be read here; NULL: no bit is set */
	struct epoch_plan plans[2];
	struct cached_cursor cursor; /* position of head in the order, while the dataset evicts */
	bool has_cursor;
	uint32_t *chunk_samples; /* samples of each chunk, also those outside the subset */
	uint64_t *samples;       /* head's */
	uint32_t *stamps, stamp;

	struct order_ahead ahead;
	uint64_t *windows_of_head, *windows_of_next; /* space for one window per sample of a batch */
	uint32_t n_of_head;
	struct order_lane *lanes;
	struct order_pace pace;
	uint64_t visited_epoch, n_visited; /* n_visited: number of visited chunks, over all epochs */
};

/* Counts samples, chunks and batches, chooses the window, and plans the first epoch. The dataset, request and
 * subset are already set. is_of_cluster: nodes with other caches have the same order. notice: one line for
 * the user if the window is smaller than the default. -EINVAL: there are too few samples. */
int order_open(struct order *o, const struct serving_options *options, bool is_of_cluster, char *notice,
	       size_t size, struct error *err);
/* Sets the shape for a session with n_slots slots, and returns the most that it can pin or wait for at one
 * time: for any order, or, if `exact`, in bytes for its first epoch. samples: the number of samples of each
 * visited chunk, ascending. views: batches pin their chunks until the client releases them. -ENOMEM. */
int order_need(struct order *o, const uint32_t *samples, uint32_t n_slots, bool views, uint64_t *ret_chunks,
	       uint64_t *ret_bytes);
/* Begins at the request's first batch. membership: as in struct order. -ENOMEM. */
int order_start(struct order *o, struct membership *membership);
/* Frees all memory of the order, including the subset. */
void order_end(struct order *o);

/* Makes the next batch head. Returns false if there is none, if it has not been requested yet, or if
 * memory runs out. */
bool order_next(struct order *o);
/* Continues from this batch, or from the session's first one after it. */
void order_seek(struct order *o, uint64_t epoch, uint64_t batch);
/* Queues a batch that the client asks for. -EPROTO: the session does not ask for batches, this is not the
 * next one, or it has too many samples or batches. */
int order_ask(struct order *o, const struct wire_ask *ask);

/* Inputs from outside the order: the time, the client's total wait for storage, and how many consecutive
 * batches of the group are kept from head on; they need no chunk (group.h). */
struct order_now {
	uint64_t at_ns, waited_ns, kept_run;
};

/*
 * Lists in `ahead` the chunks of the windows of head and of the batches after it. The list ends
 * prefetch_chunks after head's own chunks, or later if storage would otherwise be late, and at the end of the
 * next epoch. Omits windows that no batch of this session touches, and kept batches. Also updates the cursor
 * if the dataset evicts chunks. Does nothing if batches are asked for.
 */
void order_look_ahead(struct order *o, const struct order_now *now);
/* Withdraws the cursor: the session's position no longer affects eviction. */
void order_drop_cursor(struct order *o);
/* Registers the session's lanes with the membership. */
void order_join_lanes(struct order *o);

static inline bool order_skips(const struct order *o, uint64_t chunk)
{
	return o->skips && o->skips[chunk / 64] >> (chunk % 64) & 1;
}
