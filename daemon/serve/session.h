/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A session: one client's sequence of batches. It decides which batch comes next, which chunks are wanted
 * and how soon, and moves batches through its slots:
 *
 *   next batch (head) --all chunks ready, slot free--> filling (worker) --in order--> published
 *   --client frees it--> free
 *
 * A slot is what the client knows a batch by, until it gives it back; the batch lies in a frame (frames.h).
 *
 * Loop thread only. It calls cache.handler.changed() when something may have become possible for others.
 */

#include "batch.h"
#include "client/protocol.h"
#include "frames.h"
#include "group.h"
#include "daemon/cache/job.h"
#include "serving_knobs.h"
#include "session_need.h"

/* The window of a job with several ranks that asks for none: the same for all of them. */
#define SESSION_RANKS_WINDOW 8
/* The same where it has lanes, each with a window of its own. */
#define SESSION_LANES_WINDOW 2

enum slot_state {
	SLOT_FREE,
	SLOT_FILLING,
	SLOT_FILLED, /* waits for its turn to be published */
	SLOT_PUBLISHED,
};

struct codecs;
struct forms;
struct sharer;
struct subset;
struct session;

struct slot {
	struct pool_task task;
	struct session *session;
	enum slot_state state;
	uint32_t generation;
	struct batch batch;
	struct batch_decoded decoded; /* what the worker did last */
	uint32_t frame;               /* where its batch lies; FRAME_NONE */
	bool lacks_frame;             /* FILLING, as soon as there is one */
	struct slot *awaits;          /* FILLING, by what decoders fill this one with (group.h) */
	struct frames *from;          /* FILLING, by a copy of this frame; else NULL */
	uint32_t from_frame;
	struct frames *keep; /* FILLING: what its frame held is copied there first (group.h); else NULL */
	uint32_t keep_frame;
	bool shared;         /* another session decoded its batch... */
	uint64_t shared_job; /* ... which was of the job with this number */
	uint64_t decode_ns;  /* CPU time of decoders so far */
};

/* A batch that the client asked for. */
struct asked_batch {
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

/* The client's counters at the sensor's last look (sensor_job.c). */
struct session_sensed {
	bool known;
	uint32_t consumed;
	uint64_t wait_ns, fetch_ns;
	uint64_t n_samples, next_ns, handoff_ns, n_handoffs, cpu_ns, busy_ns, n_worked;
};

/* Windows of a lane, in the order of their numbers: the first one that `ahead` does not list, and that is not
 * counted as visited. */
struct session_lane {
	uint64_t listed, visited;
};

/* How fast it uses its chunks: the last windows count most. */
struct session_pace {
	uint64_t at_ns, wait_ns,
	    visit;              /* at the last window: the time, the client's waits for storage, the visit */
	double visits, used_ns; /* without these waits */
};

struct session {
	struct session *next;
	struct cache *cache;
	const struct serving_options *options;
	struct cached_dataset *dataset;
	struct chunk_place *place; /* where it opens chunks; set by whoever opens the session, before the
				first session_pump() */
	struct job *job;           /* set by whoever opens the session, before the first session_pump() */
	struct sharer *sharer;     /* of the job's nodes, set as these; NULL: it reads for itself */
	int64_t pid;
	uint32_t uid;
	uint32_t payer;                   /* cache_quota.h; set as the place */
	struct wire_open_session request; /* with the window in force */
	bool is_warm;                     /* it only has its chunks brought into memory: session_warm.c */
	uint64_t *elsewhere;              /* for that: a bit for each chunk that another node has... */
	uint64_t n_known;                 /* ... of the first so many; of the rest it is not known yet */
	uint64_t full_ns;                 /* for that: when there was no room */
	bool is_of_cluster;           /* other nodes of the job have the same order, whatever their caches */
	struct subset *subset;        /* NULL: all samples */
	uint64_t n_samples, n_chunks; /* that it serves, and that these are in */
	uint64_t n_batches,
	    start_batch; /* start_batch: the first one of the request's epoch, where it has a start */
	uint32_t item_bytes;
	uint32_t batch; /* the most items in a batch: slots and all else are sized by this */
	struct ring_layout layout;
	struct shared_memory control_memory;
	struct frames *frames;
	uint32_t frames_member; /* its number there */
	struct ring_control *control;
	struct codecs *codecs; /* NULL: samples are served as they are stored */
	struct forms *forms;   /* of what it decodes; NULL: there can be none */
	uint64_t cost_bytes;   /* of frames and their bookkeeping, counted in the cache's budget */
	uint64_t need_bytes;   /* reserved: bytes that it can pin or wait for at one time (session_need.h) */
	uint64_t need_chunks;  /* the same in chunks, at most */
	bool exact;            /* reserved epoch by epoch: there is no room for the worst order */
	uint32_t prefetch_chunks; /* its job's knob, or the daemon's */

	struct slot slots[RING_MAX_SLOTS];
	uint32_t n_slots;
	uint32_t order[RING_MAX_SLOTS]; /* slots filling or filled, in the order of their batches */
	uint32_t order_first, order_last;
	uint32_t published; /* our own count: the client can spoil the shared one */
	uint32_t generation;

	uint64_t epoch, index;     /* of the batch after head */
	struct asked_batch *asked; /* NULL: it has an order. n_slots of them, batch i at i % n_slots... */
	uint64_t asked_end;        /* ... those from index on, up to this one */
	struct batch head;
	bool has_head;
	struct cached_want want; /* the samples that it needs of its chunks; of one that asks: of head's */
	struct epoch_plan plans[2];
	struct cached_cursor cursor; /* where it is, while the dataset evicts */
	bool has_cursor;
	uint32_t *chunk_samples; /* of each chunk of the dataset, whether they are in the subset or not */
	uint64_t *samples;       /* head's */
	uint32_t *stamps, stamp;

	uint32_t *ahead; /* chunks in the order they are needed: those of head's windows, then read-ahead */
	uint32_t n_ahead, size_ahead;
	uint64_t ahead_epoch;                        /* of the head that `ahead` was made for */
	uint64_t *windows_of_head, *windows_of_next; /* room for one a sample of a batch */
	uint32_t n_of_head;
	struct session_lane *lanes; /* of the order */
	uint32_t ahead_prefetch;
	bool ahead_kept; /* made without what is kept */
	struct session_pace pace;
	uint64_t visited_epoch, n_visited; /* n_visited: chunks, of all epochs */

	uint64_t last_served;
	int starved; /* the errno for which its chunk got no memory in this round of scheduling, or 0 */
	bool stopped, orphaned, closing; /* no more batches; connection over; client gone */
	uint32_t n_filling;
	uint64_t n_delivered, n_turns;
	struct group_member member;
	struct session_sensed sensed;
};

/*
 * Admits and opens a session, on a subset of the dataset's samples or (NULL) all of them. Takes the subset in
 * any case. On success the reply is filled, and the session lends the descriptors of its control memory and
 * its frames. uid: whose it is. -ENOSPC: too little cache, and err says how much it takes; -EINVAL.
 */
int session_new(struct cache *cache, const struct serving_options *options, struct cached_dataset *dataset,
		uint32_t uid, const struct wire_open_session *request, struct subset *subset,
		struct session **ret, struct wire_session_reply *ret_reply, struct error *err);
/* Finds the decoded forms that are its user's. Without memory it goes on without any. */
void session_find_forms(struct session *s);
/*
 * To be called when its connection is over but its process lives: nothing more is produced, and what the
 * client has not taken yet is taken back. Returns how many batches the client still has, which stay as they
 * are; call again until it is 0.
 */
uint32_t session_orphan(struct session *s);
/* Returns true if the client has no batch left, nor one that workers are at. It can spoil what tells. */
bool session_is_drained(const struct session *s);
/* Ends the session. Its pins are dropped at once; its memory goes when the last worker is done with it. */
void session_end(struct session *s);

/* Takes in slots that the client gave back, and starts what can be started. */
void session_pump(struct session *s);
uint32_t session_seek(struct session *s, uint64_t epoch, uint64_t batch);
/* Marks the distances of its chunks in this round. Finds the nearest chunk that is not in memory; false:
 * there is none. */
bool session_mark(struct session *s, uint64_t *ret_chunk, uint32_t *ret_distance);

struct session_usage {
	uint32_t ready, held, pinned_chunks;
	const char *waits_for; /* "", "fetch", "prep", "client" */
};
void session_usage(const struct session *s, struct session_usage *ret);

/* For group.h. Hands the slot to a worker, when there is a frame for it: decoders fill it. */
void session_fill(struct slot *slot);
/* Gives the slot the batch that a frame holds: where it lies, or, where that cannot be, as a copy. */
void session_fill_from(struct slot *slot, struct frames *from, uint32_t frame);
/* The slot is filled, or what it is filled with is to be dropped. */
void session_filled(struct slot *slot);

/* Adds the waits that the session's client reports. */
void session_add_waits(const struct session *s, uint64_t now_ns, struct job_counters *counters);

/* session_open.c: bytes of the cache's limit that neither slots nor the sessions of other datasets need. */
uint64_t session_available_bytes(const struct session *s);

/* session_reserve.c. For a session that is exact: reserves what a new plan needs, if there is room... */
int session_note_plan(struct session *s, struct epoch_plan *plan);
/* ... and turns head into an error if there is none. */
void session_check_head(struct session *s);
/* Reduces what is reserved to what its batches have pinned, because nothing more is produced. */
void session_reserve_pinned(struct session *s);
/* Turns the next batch, which cannot be had for this reason, into an error that says what to do. bytes: what
 * it takes; 0: that of its own chunks. */
void session_give_up(struct session *s, int reason, uint64_t bytes);
void session_shape(const struct session *s, struct session_shape *ret);

/* session_plan.c: the order. First, how many samples it has, and in how many chunks. */
int session_count_samples(struct session *s, struct error *err);
int session_plan_init(struct session *s, struct error *err);
/* After its sharer is set: that is told of its order's lanes. */
void session_join_lanes(struct session *s);
void session_plan_free(struct session *s);
/* Prepares head from (epoch, index). Returns false if the session has no batches at all, or without
 * memory. */
bool session_prepare_head(struct session *s);
void session_update_ahead(struct session *s);
/* Where it is in its order matters no longer. */
void session_drop_cursor(struct session *s);
/* Makes head the batch (epoch, index) of these samples. */
void session_set_head(struct session *s, const uint64_t *samples, uint32_t n);
/* Adds a chunk to those that are wanted after head's. false: no memory. */
bool session_ahead_push(struct session *s, uint64_t chunk);
/* The first batch from this one on that is the session's. */
uint64_t session_first_index(const struct session *s, uint64_t epoch, uint64_t batch);

/* session_far.c. Head has come to the window of this visit, counted over all epochs. */
void session_note_pace(struct session *s, uint64_t visit, uint64_t now_ns);
/* How many chunks to list beyond head's own, and how many of those that are listed, own ones included, are to
 * be read. */
uint32_t session_far_most(const struct session *s);
uint32_t session_far_ahead(const struct session *s, uint32_t own);

/* session_asked.c: sessions whose client asks for the samples of each batch. Memory for what it may ask for.
 */
int session_asked_init(struct session *s);
/* -EPROTO: the session has an order, or this is not the next batch, or too much is asked for. */
int session_ask(struct session *s, const struct wire_ask *ask);
/* As session_prepare_head(): false: nothing more is asked for. */
bool session_prepare_asked(struct session *s);

/* session_warm.c: sessions for which chunks are brought into memory, as far as there is room that nobody
 * uses, after all that others read (DIESEL_WARM). So far ahead are their chunks: farther than any order
 * reaches. */
#define SESSION_WARM_DISTANCE (1u << 30)
/* What such a job weighs beside others. */
#define SESSION_WARM_WEIGHT (TURN_WEIGHT / 16)
/* Fails head, if it is not for this node to have. false: it has to wait, until it is known which nodes there
 * are. */
bool session_warm_look(struct session *s);
/* It is known for all chunks; else look again soon. */
bool session_warm_knows(const struct session *s);
bool session_warm_is_elsewhere(const struct session *s, uint64_t chunk);
/* There is no room for the nearest chunk that it lacks. Returns true if head is failed for that. */
bool session_warm_full(struct session *s, uint64_t now_ns);
/* Lists chunks behind this one. */
void session_warm_ahead(struct session *s, uint64_t chunk);
/* The session's client has come to its job. */
void session_warm_weigh(const struct session *s);

/* session_taken.c: adds to its job what the session's client took and reported since the last call. Called
 * once a second, and before the session closes. */
void session_count_taken(struct session *q, uint64_t now_ns);
