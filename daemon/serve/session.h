/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session: serves a sequence of batches to one client, for a job. Its order (order.h) yields the next
 * batch, its slots (slots.h) hold batches. The session moves batches from the order to the slots, as far as
 * the cache and its group (group.h) allow:
 *
 *   next batch (head) --all chunks ready, slot free--> filling (worker) --in order--> published
 *   --client frees it--> free
 *
 * Loop thread only. It calls cache.handler.changed() when something may have become possible for others.
 */

#include "client/protocol.h"
#include "group.h"
#include "daemon/cache/job.h"
#include "order.h"
#include "serving_knobs.h"
#include "slots.h"

struct codecs;
struct decoded_cache;
struct serving;
struct subset;

/* The client's counters at the last call of session_count_taken(). */
struct session_sensed {
	bool known;
	uint32_t consumed;
	uint64_t wait_ns, fetch_ns;
	uint64_t n_samples, next_ns, handoff_ns, n_handoffs, cpu_ns, busy_ns, n_worked;
};

enum session_priority {
	SESSION_SERVES,
	SESSION_SPARE, /* reads after all other sessions, and only into unused memory (session.c) */
};

/* State of a session of the lowest priority (SESSION_SPARE). */
struct session_spare {
	uint64_t n_known; /* the session has checked whether other nodes have the first n_known chunks */
	uint64_t full_ns; /* time when memory was last found full */
};

struct session {
	struct session *next;
	struct serving *serving;
	struct cache *cache;
	struct chunk_place *place; /* place where the session opens its chunks */
	struct job *job;
	int64_t pid;
	uint32_t uid;
	uint32_t payer; /* cache_quota.h */
	enum session_priority priority;
	struct order order;
	struct slots slots;
	struct codecs *codecs;               /* NULL: samples are served as they are stored */
	char field[WIRE_FIELD_BYTES];        /* field that they decode; "": samples have no fields */
	struct decoded_cache *decoded_cache; /* decoded copies of its samples; NULL: none */
	bool is_counted;                     /* the costs below are counted with the cache and the dataset */
	uint64_t cost_bytes;  /* buffers and their bookkeeping, counted in the cache's budget */
	uint64_t need_bytes;  /* reserved: bytes that it can pin or wait for at one time (order.h) */
	uint64_t need_chunks; /* upper bound of need_bytes, in chunks */
	uint64_t last_served;
	int starved; /* the errno for which its chunk got no memory in this round of scheduling, or 0 */
	bool stopped, orphaned, closing; /* in this order: no more batches, connection over, client gone */
	uint64_t n_delivered;
	struct group_member member;
	struct session_sensed sensed;
	struct session_spare spare;
};

/* Arguments of session_open(). All are borrowed for the call, except the subset. */
struct session_args {
	struct serving *serving;
	struct cached_dataset *dataset;
	struct chunk_place *place;
	int64_t pid;
	uint32_t uid, payer;
	const struct wire_open_session *request;
	const struct wire_origin *origin;
	const char *field;     /* field to which the recipe applies; "": none */
	struct subset *subset; /* NULL: all samples. session_open() takes ownership, also on failure */
	/* Returns 0 if the client may use this many more bytes of memory for batches, and reserves them.
	 * NULL: no limit. Called again with 0 when all that the session needs is counted. */
	int (*may_take)(void *user, uint64_t bytes, struct error *err);
	void *user;
};

/*
 * Admits and opens a session, which starts to serve: it has a job, is listed, and has joined its group. Fills
 * the reply; the descriptors of control memory and buffers in it stay the session's. -ENOSPC: too little
 * cache, and err says how much is needed; -EINVAL, ...: err says why. After an error nothing is left behind.
 */
int session_open(const struct session_args *args, struct session **ret, struct wire_session_reply *ret_reply,
		 struct error *err);
/* Ends the session. Drops its pins at once, and frees its memory when the last worker has finished.
 * Accepts NULL. */
void session_close(struct session *s);
/* Frees a closed session whose last worker has finished, or a session that could not be opened. */
void session_free(struct session *s);

/*
 * To be called when the session's connection has ended but its process lives. Produces no more batches, and
 * takes back those that the client has not taken yet. Returns how many batches the client still holds, which
 * stay untouched. Call again until it returns 0.
 */
uint32_t session_orphan(struct session *s);
/* Stops the production of batches. */
void session_stop(struct session *s);
/* Frees the slots that the client released, and starts all work that can start. */
void session_pump(struct session *s);
/* Continues from this batch. Returns the generation of the batches that follow. */
uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch);
/* Lists the chunks that are needed next again, because the prefetch knob has changed. */
void session_look_ahead(struct session *s);

/* Marks the distances of its chunks in this round. Finds the nearest chunk that is not in memory; false:
 * there is none. */
bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance);
/* To be called when there is no memory for the session's nearest chunk. is_still: nobody will release
 * memory. Returns true if the next batch became an error because of that. */
bool session_starve(struct session *s, bool is_still);

struct session_usage {
	uint32_t ready, held, pinned_chunks;
	const char *waits_for; /* "", "fetch", "prep", "client" */
};
void session_usage(const struct session *s, struct session_usage *ret);
/* Adds the waits that the session's client reports. */
void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters);
/* Adds to its job the samples that the session's client took and the times that it reported since the last
 * call. Called once a second, and before the session closes (job_figures.c). */
void session_count_taken(struct session *q, uint64_t now_ns);

/* Passes the slot to a worker as soon as a buffer is free, so that decoders fill it. */
void session_fill(struct batch_slot *slot);
/* Gives the slot the batch that a buffer holds: in place if possible, else as a copy. */
void session_fill_from(struct batch_slot *slot, struct buffers *from, uint32_t buffer);
/* To be called when the slot is filled, or its batch must be dropped. Publishes all slots whose turn it
 * is. */
void session_filled(struct batch_slot *slot);

/* Returns the bytes of the cache's limit that neither slots nor the sessions of other datasets need. */
uint64_t session_available_bytes(const struct session *s);

/* Returns true if it is known which chunks are this node's. Otherwise call again soon. */
bool session_spare_knows(const struct session *s);

/* Asserts the invariants of sessions, in builds with assertions: counts equal the lists, and pinned chunks
 * are in memory. Called at the end of each turn of the event loop. */
#ifdef NDEBUG
static inline void check_sessions(const struct serving *serving)
{
	(void)serving;
}
#else
void check_sessions(const struct serving *serving);
#endif
