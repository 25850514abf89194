/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * States of the important threads over the window, as segments for drawing: the trainer, the workers, their
 * hand-off threads and the busiest other threads of the trainer's process. A lane holds one thread, or
 * several that lived one after the other (workers forked again for each epoch).
 *
 * Segments of a lane are sorted and do not overlap; between two segments the state is not known. If the
 * recording has more segments than the caller asked for, time is cut into cells of `cell_ns` that show one
 * state each. Over many cells, each state is shown for about as long as it lasted. A few excerpts (the first,
 * a typical and the slowest steps) stay exact.
 */

#include <stddef.h>
#include <stdint.h>

#include "analyzer/share.h"

enum lane_role {
	LANE_TRAINER,
	LANE_WORKER,
	LANE_HANDOFF, /* the thread of a worker that hands its batches over */
	LANE_HELPER,  /* another thread of the trainer's process */
};

/* Values are part of the HTML report's data; the first six are shares, and only the trainer has them. */
enum lane_state {
	LANE_DEVICE = SHARE_DEVICE,
	LANE_FETCH_STALL = SHARE_FETCH_STALL,
	LANE_PREP_STALL = SHARE_PREP_STALL,
	LANE_CHECKPOINT = SHARE_CHECKPOINT_STALL,
	LANE_STARVED = SHARE_CPU_STARVED,
	LANE_OTHER = SHARE_OTHER,
	LANE_CPU,       /* computing: decoding, transforming, handing over */
	LANE_FETCH,     /* in calls that read files or sockets, or in page faults on files */
	LANE_QUEUE,     /* ready to run, without a core */
	LANE_IDLE,      /* a worker without work, because it is ahead of the trainer */
	LANE_BLOCKED,   /* asleep for another reason */
	LANE_GPU_WAIT,  /* trainer only: part of device */
	LANE_COMPILING, /* trainer only: a separate share */
	LANE_STATES,
};

struct lane_segment {
	uint64_t begin_ns, end_ns;
	enum lane_state state;
};

/* A worker prepares one batch; on a lane of role LANE_WORKER. */
struct lane_batch {
	uint64_t begin_ns, end_ns;
};

struct lane {
	enum lane_role role;
	char name[32]; /* "trainer", "worker 1", ... or the thread's own name, which may hold any bytes */
	uint32_t tid, tgid; /* IDs of the lane's first thread */
	struct lane_segment *segments;
	struct lane_batch *batches; /* sorted by begin */
	size_t n_segments, n_batches;
};

/* A thread made another one runnable, which ended a data wait of the trainer, directly or through others. */
struct lane_wake {
	uint64_t waking_ns, run_ns; /* when `to` became runnable; when it got a core */
	uint32_t from, to;          /* lanes */
};

/* A data wait of the trainer. fetch_ns: the part that counts as fetch_stall. */
struct lane_wait {
	uint64_t begin_ns, end_ns, fetch_ns;
};

/* From at_ns on, n_ready batches are ready and not taken yet. */
struct lane_level {
	uint64_t at_ns;
	uint32_t n_ready;
};

/* A thread in a synchronising call into the GPU's driver. */
struct lane_gpu_call {
	uint64_t begin_ns, end_ns;
	uint32_t lane;
	const char *function; /* static */
};

struct lanes {
	uint64_t cell_ns; /* 0: everything is exact */
	struct lane *items;
	struct lane_wake *wakes; /* sorted by run_ns */
	struct lane_wait *waits;
	struct lane_level *levels;       /* sorted by time; NULL without workers */
	struct lane_gpu_call *gpu_calls; /* sorted by time within a lane; NULL: none */
	size_t n_items, n_wakes, n_waits, n_levels, n_gpu_calls;
};

/* "device", "fetch_stall", ..., "idle" */
const char *lane_state_name(enum lane_state state);

/* Returns the state that the trainer's lane shows for a share. */
enum lane_state lane_state_of_share(enum analysis_share share);

void lanes_free(struct lanes *lanes);
