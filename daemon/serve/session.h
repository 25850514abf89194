/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session: one client's sequence of batches. It decides which batch comes next, which chunks are wanted
 * and how soon, and moves batches through its slots:
 *
 *   next batch (head) --all chunks ready, slot free--> filling (worker) --in order--> published
 *   --client frees it--> free
 *
 * Loop thread only. It calls cache.on_change() when something may have become possible for others.
 */

#include "batch.h"
#include "client/protocol.h"
#include "job.h"
#include "serving_knobs.h"
#include "session_need.h"

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_FILLED, /* waits for its turn to be published */
	SLOT_PUBLISHED,
};

struct session;

struct slot {
	struct pool_task task;
	struct session *session;
	enum slot_state state;
	uint32_t generation;
	struct batch batch;
};

struct epoch_plan {
	uint64_t epoch;
	struct shuffle_plan *plan;
	uint64_t need_bytes; /* of that epoch, and of its edge to the other one that is kept */
};

/* The client's counters when the sensor looked last (sensor_job.c). */
struct session_sensed {
	bool known;
	uint32_t consumed;
	uint64_t wait_ns, fetch_ns;
	uint64_t n_samples, next_ns, handoff_ns, n_handoffs, cpu_ns, busy_ns, n_worked;
};

struct session {
	struct session *next;
	struct cache *cache;
	const struct serving_options *options;
	struct cached_dataset *dataset;
	struct place *place; /* where it opens chunks; set by who opens it, before anything is pumped */
	struct job *job;     /* set by who opens it, before anything is pumped */
	int64_t pid;
	uint32_t uid;
	struct wire_open_session request; /* with the window in force */
	uint64_t n_batches;
	uint32_t item_bytes;
	uint32_t batch; /* the most items of a batch: what slots and all else are sized by */
	struct ring_layout layout;
	struct shared_memory control_memory, slot_memory;
	struct ring_control *control;
	uint64_t cost_bytes;      /* of slots and their bookkeeping, counted in the cache's budget */
	uint64_t need_bytes;      /* reserved: what it can pin or wait for at one time (session_need.h) */
	uint64_t need_chunks;     /* as many at most */
	bool exact;               /* reserved epoch by epoch: there is no room for what any order may need */
	uint32_t prefetch_chunks; /* its job's knob, or the daemon's */

	struct slot slots[RING_MAX_SLOTS];
	uint32_t n_slots;
	uint32_t order[RING_MAX_SLOTS]; /* slots filling or filled, in the order of their batches */
	uint32_t order_first, order_last;
	uint32_t published; /* our own count: the shared one is the client's to spoil */
	uint32_t generation;

	uint64_t epoch, index; /* of the batch after head */
	struct batch head;
	bool has_head;
	struct epoch_plan plans[2];
	uint32_t *chunk_samples;
	uint64_t *samples;
	uint32_t *stamps, stamp;

	uint32_t *ahead; /* chunks in the order they are needed: the windows of head, then read-ahead */
	uint32_t n_ahead, size_ahead;
	uint64_t ahead_epoch, ahead_window; /* that `ahead` was made for */
	uint32_t ahead_prefetch;
	uint64_t visited_epoch, visited_windows; /* windows of this epoch that the job's counters know of */

	uint64_t last_served;
	int starved;                     /* of memory, in this round of scheduling: the errno, or 0 */
	bool stopped, orphaned, closing; /* no more batches; no more connection; no more client */
	uint32_t n_filling;
	uint64_t n_delivered;
	struct session_sensed sensed;
};

/*
 * Admits and opens a session. On success the reply is filled and the two descriptors of control and slot
 * memory are lent. -ENOSPC: too little cache, the text says how much it takes; -EINVAL.
 */
int session_new(struct cache *cache, const struct serving_options *options, struct cached_dataset *dataset,
		const struct wire_open_session *request, struct session **ret,
		struct wire_session_reply *ret_reply, struct error *err);
/*
 * Its connection is over, its process lives: nothing more is produced, and what the client has not taken yet
 * is taken back. The result is how many batches it still has, which stay as they are; ask again until it is
 * 0.
 */
uint32_t session_orphan(struct session *s);
/* Its pins are dropped at once; memory goes when the last worker is done with it. */
void session_end(struct session *s);

/* Returns given-back slots, starts what can be started. */
void session_pump(struct session *s);
uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch);
/* Marks this round's distances; the nearest chunk that is not in memory, or false. */
bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance);

struct session_usage {
	uint32_t ready, held, pinned_chunks;
	const char *waits_for; /* "", "fetch", "prep", "client" */
};
void session_usage(const struct session *s, struct session_usage *ret);

/* Adds what the session's client says that it waited. */
void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters);

/* session_open.c: bytes of the cache's limit that other datasets' sessions do not need, slots apart. */
uint64_t session_available_bytes(const struct session *s);

/* session_reserve.c. Of a session that is exact: what a new plan needs is reserved, if there is room... */
int session_note_plan(struct session *s, struct epoch_plan *plan);
/* ... and head becomes an error where there is none. */
void session_check_head(struct session *s);
/* Keeps no more reserved than what its batches have pinned: nothing more is produced. */
void session_reserve_pinned(struct session *s);
/* The next batch cannot be had, for this reason: it becomes an error that says what to do. bytes: that it
 * takes; 0: of its own chunks. */
void session_give_up(struct session *s, int reason, uint64_t bytes);
void session_shape(const struct session *s, struct session_shape *ret);

/* session_plan.c: the order. */
int session_plan_init(struct session *s, struct error *err);
void session_plan_free(struct session *s);
/* Prepares head from (epoch, index). false: this session has no batches at all, or no memory. */
bool session_prepare_head(struct session *s);
void session_update_ahead(struct session *s);
uint64_t session_first_index(const struct session *s, uint64_t batch);

/* session_taken.c: adds to its job what the session's client took and told since the last time: once a
 * second, and before it closes. */
void session_count_taken(struct session *q, uint64_t now_ns);
