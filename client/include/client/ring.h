/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shared memory of a session: a control area that both sides write, and batch slots that only the
 * daemon writes.
 *
 * Control (memfd, MAP_SHARED on both sides): the daemon publishes descriptors of ready batches in a ring. The
 * client takes them in order (LENT to TAKEN) and gives the slots back by storing RING_SLOT_FREE. In the
 * steady state neither side makes a system call. The client sleeps on the futex word `published` only when
 * the ring is empty, and the daemon wakes it only then. The client sends a KICK only when `daemon_waits`
 * shows that the daemon waits for a slot and at most `wake_below` batches are ready, so that a full ring is
 * refilled in gulps.
 *
 * When the connection ends while the client lives, the daemon takes back the batches that were not taken yet.
 * For that it exchanges HELD for FREE; only one of this exchange and the client's succeeds. It does not touch
 * a batch that was taken until the client releases it or the process has exited.
 *
 * The daemon never trusts what it reads here: it keeps its own count, and a client that writes slot_state can
 * only free slots of its own session.
 *
 * A slot represents a batch that the client may have; the batch is in a batch buffer, which its descriptor
 * names. Sessions with the same batches share one pool of buffers, and each has slots of its own: slots of
 * several sessions may refer to one buffer, but never two slots of one session.
 *
 * Buffers are in one memfd of n_buffers * slot_bytes, sealed against shrinking, growing and new writers. It
 * has no memory where nothing was laid out. A buffer has:
 *   0               struct ring_item[batch]
 *   labels_offset   int64_t[batch], 64-byte aligned
 *   payload_offset  packed batches: batch * item_bytes, 64-byte aligned
 * Samples that were decoded are packed. A damaged sample that was replaced by zeros has `bytes` 0. The
 * samples that were left out stand after the batch's items. If a field of the samples was decoded, the batch
 * is packed and has views, too: items locate the stored samples. A descriptor with a negative status has the
 * error's text, terminated, at the start of its buffer.
 *
 * Each side announces its sleep by a store to its flag, followed by a load of the other's word, both
 * sequentially consistent: so at least one of the two always sees the other (Dekker).
 */

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC      0x474e5244u /* "DRNG" */
#define RING_MAX_SLOTS  64u         /* power of two; also the ring's size */
#define RING_MIN_SLOTS  3u /* minimum slots: two for the client to hold, one for the daemon to fill */
#define RING_MAX_FRAMES 512u
#define RING_NO_WISH    UINT32_MAX /* value of wanted_workers: the daemon requests no number */

enum ring_slot_state {
	RING_SLOT_FREE = 0,
	RING_SLOT_HELD = 1,  /* published */
	RING_SLOT_TAKEN = 2, /* taken by the client, which holds the batch until it frees the slot */
};

enum ring_cause { /* cause of the wait for the next batch; enum diesel_mark_cause */
		  RING_CAUSE_NONE = 0,
		  RING_CAUSE_FETCH = 1,
		  RING_CAUSE_PREP = 2,
		  RING_CAUSE_PEERS = 3,
		  RING_CAUSE_STAGING = 4,
};

static inline bool ring_cause_fetches(uint32_t cause)
{
	return cause == RING_CAUSE_FETCH || cause == RING_CAUSE_PEERS || cause == RING_CAUSE_STAGING;
}

/* Returns the cause to report for a sleep with two causes: the last one in the order none, preparation,
 * staging, peers, storage. CPU work that follows a read counts as the read's; of several reads, the
 * farthest source decides. An unknown cause counts as none. */
static inline uint32_t ring_cause_of_both(uint32_t a, uint32_t b)
{
	static const uint8_t rank[] = {[RING_CAUSE_NONE] = 0,
				       [RING_CAUSE_PREP] = 1,
				       [RING_CAUSE_STAGING] = 2,
				       [RING_CAUSE_PEERS] = 3,
				       [RING_CAUSE_FETCH] = 4};
	uint32_t rank_a = a < sizeof(rank) ? rank[a] : 0, rank_b = b < sizeof(rank) ? rank[b] : 0;

	return rank_a >= rank_b ? a : b;
}

/* Laid out as struct diesel_item, so that packed batches need no work on the client's side. */
struct ring_item {
	uint64_t location; /* views: segment << 32 | offset in the segment; else 0 */
	uint64_t sample;
	uint32_t bytes;
	int32_t label;
};

struct ring_descriptor {
	uint64_t epoch;
	uint64_t index;
	uint32_t generation; /* grows with every seek: batches of an older one are released unread */
	uint32_t slot;
	uint32_t n_items;
	uint32_t item_bytes; /* 0: views */
	int32_t status;      /* 0 or a negative errno */
	uint32_t n_damaged;  /* samples that could not be decoded, and are missing or zeros in the batch */
	uint32_t buffer;
	uint32_t reserved[5];
};

enum ring_work_policy {                      /* side that chooses the number of worker processes */
			RING_WORK_NONE = 0,  /* no Python work, so no workers */
			RING_WORK_FIXED = 1, /* the user chooses: wanted_workers is ignored */
			RING_WORK_AUTO = 2,  /* the daemon chooses, from the next batch on */
};

/*
 * Totals of Python work (loader, transform, collate_fn) since the session was first opened, and where that
 * work is done. They are kept across a restart of the daemon. The client stores each field, relaxed, after
 * every batch; only the daemon's sensing reads them. All zero: no Python work. To get a cost per sample or
 * batch, divide the difference between two readings.
 */
struct ring_work {
	_Atomic uint64_t n_batches; /* batches handed to the trainer */
	_Atomic uint64_t n_samples;
	_Atomic uint64_t next_ns;           /* the trainer's time inside next(), waits included */
	_Atomic uint64_t wait_ns;           /* part of next_ns: asleep until a worker process is done */
	_Atomic uint64_t n_waits;           /* number of those sleeps */
	_Atomic uint64_t inline_ns;         /* part of next_ns: Python work in the trainer itself */
	_Atomic uint64_t handoff_ns;        /* part of next_ns: handing batches and results over */
	_Atomic uint64_t worker_handoff_ns; /* CPU time of the workers for handing results back */
	_Atomic uint64_t n_handoffs;        /* batches made by workers */
	_Atomic uint64_t cpu_ns;            /* CPU time in Python work, in the trainer or in workers */
	_Atomic uint64_t busy_ns;      /* wall time in Python work, summed over workers (and the trainer) */
	_Atomic uint64_t n_worked;     /* samples that cpu_ns and busy_ns cover */
	_Atomic uint64_t result_bytes; /* bytes of the batches made by workers */
	_Atomic uint64_t worker_bytes; /* not a total: mean private memory of a worker; 0: not known */
	_Atomic uint32_t n_workers;    /* not a total: processes at work now; 0: the trainer does the work */
	_Atomic uint32_t n_deaths;     /* workers that died and were replaced */
	_Atomic uint32_t policy;       /* enum ring_work_policy */
	uint32_t reserved;
};

/*
 * The trainer's Checkpointer (diesel_loader.checkpoint) measures these; struct diesel_checkpoints defines
 * each field. The client stores them, relaxed, when a checkpoint begins and when it ends. An older client
 * leaves zeros: no Checkpointer.
 */
struct ring_checkpoints {
	_Atomic uint64_t n_begun, n_failed;
	_Atomic uint64_t interval_steps;
	_Atomic uint64_t step_ns, snapshot_ns, slowdown_ns, written_ns;
	_Atomic uint64_t spent_ns, elapsed_ns;
	_Atomic uint64_t newest_ns;
	_Atomic uint32_t writing;
	uint32_t reserved;
	_Atomic uint64_t storage;
};

/* Padded on purpose: fields that one side writes in a hot loop share no cache line with the other side's.
 * NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct ring_control {
	uint32_t magic;
	uint32_t n_slots;
	uint32_t wake_below;

	alignas(64) _Atomic uint32_t published; /* futex word; counts up, wraps */
	_Atomic uint32_t cause;                 /* enum ring_cause */
	_Atomic uint32_t wanted_workers;        /* number of Python worker processes that the daemon requests;
						   RING_NO_WISH: none */

	alignas(64) _Atomic uint32_t sleeping; /* the client is about to sleep on `published` */
	_Atomic uint32_t consumed; /* the daemon uses this and the next fields for status and sensing only */
	_Atomic uint64_t n_waits;  /* sleeps for a batch */
	_Atomic uint64_t wait_fetch_ns; /* time slept for a batch, by `cause` */
	_Atomic uint64_t wait_prep_ns;
	_Atomic uint64_t wait_since_ns; /* CLOCK_MONOTONIC when the client fell asleep; 0: awake */

	alignas(64) _Atomic uint32_t daemon_waits;

	alignas(64) _Atomic uint32_t slot_state[RING_MAX_SLOTS]; /* enum ring_slot_state */
	alignas(64) struct ring_descriptor descriptors[RING_MAX_SLOTS];

	alignas(64) struct ring_work work;               /* the client's */
	alignas(64) struct ring_checkpoints checkpoints; /* the client's */
};

_Static_assert(sizeof(struct ring_item) == 24, "shared");
_Static_assert(sizeof(struct ring_descriptor) == 64, "shared");
_Static_assert(offsetof(struct ring_control, published) == 64, "shared");
_Static_assert(offsetof(struct ring_control, wanted_workers) == 72, "shared");
_Static_assert(offsetof(struct ring_control, wait_fetch_ns) == 144, "shared");
_Static_assert(offsetof(struct ring_control, slot_state) == 256, "shared");
_Static_assert(sizeof(struct ring_work) == 128, "shared");
_Static_assert(offsetof(struct ring_control, work) == 512 + 64 * RING_MAX_SLOTS, "shared");
_Static_assert(offsetof(struct ring_control, checkpoints) == 640 + 64 * RING_MAX_SLOTS, "shared");
_Static_assert(sizeof(struct ring_control) == 768 + 64 * RING_MAX_SLOTS, "shared");
/* Memory from an older daemon has as many pages, so that it may be written up to here. */
_Static_assert(sizeof(struct ring_control) <= 8192, "shared");

struct ring_layout {
	uint64_t labels_offset;
	uint64_t payload_offset;
	uint64_t slot_bytes; /* bytes of a buffer: a multiple of the page size */
};

/* Returns the layout of a buffer. item_bytes: 0 for views. batch <= WIRE_BATCH_MAX, so nothing can
 * overflow. */
struct ring_layout ring_layout(uint32_t batch, uint32_t item_bytes);

/* Daemon: publishes *descriptor as the next one, and wakes a sleeper. *counter is the daemon's own count. */
void ring_publish(struct ring_control *control, uint32_t *counter, const struct ring_descriptor *descriptor);

/* Daemon: announces that it waits for a slot. The caller must check again for free slots afterwards. */
void ring_daemon_waits(struct ring_control *control);

/* Client: returns the number of ready descriptors. counter: the client's own count of those it took. */
uint32_t ring_ready(const struct ring_control *control, uint32_t counter);

/*
 * Client: sleeps until a slot is published, at most timeout_ms. Returns 0 (check again), -ETIMEDOUT or
 * -EINTR.
 */
int ring_wait(struct ring_control *control, uint32_t counter, uint32_t timeout_ms);

/* Client: takes a published slot. Returns false if the daemon took it back because the connection has
 * ended. */
bool ring_take(struct ring_control *control, uint32_t slot);

/* Daemon: takes a published slot back, unless the client has taken it. */
void ring_revoke(struct ring_control *control, uint32_t slot);

/* Client: releases a slot. Called by any thread. */
void ring_release(struct ring_control *control, uint32_t slot);

/* Client: returns true if the caller must notify the daemon (KICK) of a free slot: the daemon waits for
 * one, `ready` is low enough, and no other thread got this answer. Any thread. */
bool ring_wants_kick(struct ring_control *control, uint32_t ready);
