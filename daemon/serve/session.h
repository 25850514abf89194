/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session: whom a sequence of batches is for. Its order says what comes next (order.h), its slots where
 * batches lie (slots.h); the session moves batches from one to the other, for a job, as far as the cache and
 * its group (group.h) let it:
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
struct forms;
struct serving;
struct subset;

/* The client's counters at the sensor's last look (sensor_job.c). */
struct session_sensed {
	bool known;
	uint32_t consumed;
	uint64_t wait_ns, fetch_ns;
	uint64_t n_samples, next_ns, handoff_ns, n_handoffs, cpu_ns, busy_ns, n_worked;
};

enum session_priority {
	SESSION_SERVES,
	SESSION_SPARE, /* after all that others read, and in memory that nobody uses (session.c) */
};

/* What a session of the lowest priority knows. */
struct session_spare {
	uint64_t
	    n_known; /* chunks, from the first one on, of which it is known whether another node has them */
	uint64_t full_ns; /* when there was no space */
};

struct session {
	struct session *next;
	struct serving *serving;
	struct cache *cache;
	struct chunk_place *place; /* where it opens chunks */
	struct job *job;
	int64_t pid;
	uint32_t uid;
	uint32_t payer; /* cache_quota.h */
	enum session_priority priority;
	struct order order;
	struct slots slots;
	struct codecs *codecs; /* NULL: samples are served as they are stored */
	struct forms *forms;   /* of what it decodes; NULL: there can be none */
	bool is_counted;       /* with the cache and the dataset: */
	uint64_t cost_bytes;   /* of frames and their bookkeeping, counted in the cache's budget */
	uint64_t need_bytes;   /* reserved: bytes that it can pin or wait for at one time (order.h) */
	uint64_t need_chunks;  /* the same in chunks, at most */
	uint64_t last_served;
	int starved; /* the errno for which its chunk got no memory in this round of scheduling, or 0 */
	bool stopped, orphaned, closing; /* no more batches; connection over; client gone */
	uint64_t n_delivered;
	struct group_member member;
	struct session_sensed sensed;
	struct session_spare spare;
};

/* Who opens a session, and on what. All but the subset is borrowed for the call. */
struct session_args {
	struct serving *serving;
	struct cached_dataset *dataset;
	struct chunk_place *place;
	int64_t pid;
	uint32_t uid, payer;
	const struct wire_open_session *request;
	const struct wire_origin *origin;
	struct subset *subset; /* NULL: all samples. Taken in any case */
	/* Returns 0 if whoever opens it may have so many bytes of memory for batches beside what he has, and
	 * makes room for them; NULL: he may. Called once more, with 0, when all that the session needs is
	 * counted. */
	int (*may_take)(void *user, uint64_t bytes, struct error *err);
	void *user;
};

/*
 * Admits and opens a session, which serves from then on: it has a job, is listed, and is one of its group's.
 * The reply is filled, and the session lends the descriptors of its control memory and its frames. -ENOSPC:
 * too little cache, and err says how much it takes; -EINVAL, ...: err says why. Nothing is left behind then.
 */
int session_open(const struct session_args *args, struct session **ret, struct wire_session_reply *ret_reply,
		 struct error *err);
/* Ends the session. Its pins are dropped at once; its memory goes when the last worker is done with it.
 * Accepts NULL. */
void session_close(struct session *s);
/* Frees a session that is closed and whose last worker is done, or that could not be opened. */
void session_free(struct session *s);

/*
 * To be called when its connection is over but its process lives: nothing more is produced, and what the
 * client has not taken yet is taken back. Returns how many batches the client still has, which stay as they
 * are; call again until it is 0.
 */
uint32_t session_orphan(struct session *s);
/* No more batches. */
void session_stop(struct session *s);
/* Takes in slots that the client gave back, and starts what can be started. */
void session_pump(struct session *s);
/* Returns the generation of the batches that follow. */
uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch);
/* Lists the chunks that are needed next again: its knob has changed. */
void session_look_ahead(struct session *s);

/* Marks the distances of its chunks in this round. Finds the nearest chunk that is not in memory; false:
 * there is none. */
bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance);
/* Its nearest chunk got no memory. is_still: nobody will give anything back. Returns true if its next batch
 * became an error for that. */
bool session_starve(struct session *s, bool is_still);

struct session_usage {
	uint32_t ready, held, pinned_chunks;
	const char *waits_for; /* "", "fetch", "prep", "client" */
};
void session_usage(const struct session *s, struct session_usage *ret);
/* Adds the waits that the session's client reports. */
void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters);
/* Adds to its job what the session's client took and reported since the last call. Called once a second, and
 * before the session closes (job_figures.c). */
void session_count_taken(struct session *q, uint64_t now_ns);

/* Hands the slot to a worker, when there is a frame for it: decoders fill it. */
void session_fill(struct batch_slot *slot);
/* Gives the slot the batch that a frame holds: where it lies, or, where that cannot be, as a copy. */
void session_fill_from(struct batch_slot *slot, struct frames *from, uint32_t frame);
/* The slot is filled, or what it is filled with is to be dropped: publishes what has its turn. */
void session_filled(struct batch_slot *slot);

/* session_open.c. For an order that is exact: reserves what its plans need, if there is room, and turns
 * head into an error if there is none. */
void session_reserve(struct session *s);
/* Reduces what is reserved to what its batches have pinned, because nothing more is produced. */
void session_reserve_pinned(struct session *s);
/* Turns the next batch, which cannot be had for this reason, into an error that says what to do. bytes: what
 * it takes; 0: that of its own chunks. */
void session_give_up(struct session *s, int reason, uint64_t bytes);

/* It is known which chunks are this node's; else look again soon. */
bool session_spare_knows(const struct session *s);

/* Asserts, in builds with assertions, what sessions promise themselves: counts equal lists, and what is
 * pinned is held. Called at the end of each turn of the event loop. */
#ifdef NDEBUG
static inline void check_sessions(const struct serving *serving)
{
	(void)serving;
}
#else
void check_sessions(const struct serving *serving);
#endif
