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
#include "serve.h"

#include "dataset/shuffle.h"

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_FILLED, /* waits for its turn to be published */
	SLOT_PUBLISHED,
};

struct session;

struct slot {
	struct pool_job job;
	struct session *session;
	enum slot_state state;
	uint32_t generation;
	struct batch batch;
};

struct epoch_plan {
	uint64_t epoch;
	struct shuffle_plan *plan;
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
	const struct serve_options *options;
	struct served_dataset *dataset;
	struct job *job; /* set by who opens it, before anything is pumped */
	int64_t pid;
	uint32_t uid;
	struct wire_open_session request; /* with the window in force */
	uint64_t n_batches;
	uint32_t item_bytes;
	uint32_t batch; /* items a slot has room for */
	struct ring_layout layout;
	struct shared_memory control_memory, slot_memory;
	struct ring_control *control;
	uint64_t cost_bytes; /* of slots and their bookkeeping, counted in the cache's budget */
	uint64_t need_chunks;
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
	bool starved;          /* of memory, in this round of scheduling */
	bool stopped, closing; /* no more batches; no more client */
	uint32_t n_filling;
	uint64_t n_delivered;
	struct session_sensed sensed;
};

/*
 * Admits and opens a session. On success the reply is filled and the two descriptors of control and slot
 * memory are lent. -ENOSPC: too little cache, the text says how much it takes; -EINVAL.
 */
int session_new(struct cache *cache, const struct serve_options *options, struct served_dataset *dataset,
		const struct wire_open_session *request, struct session **ret,
		struct wire_session_reply *ret_reply, struct error *err);
/* Its pins are dropped at once; memory goes when the last worker is done with it. */
void session_close(struct session *s);

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

/* session_plan.c: the order. */
int session_plan_init(struct session *s, uint64_t window_chunks, struct error *err);
void session_plan_free(struct session *s);
/* Prepares head from (epoch, index). false: this session has no batches at all, or no memory. */
bool session_prepare_head(struct session *s);
void session_update_ahead(struct session *s);
uint64_t session_first_index(const struct session *s, uint64_t batch);
