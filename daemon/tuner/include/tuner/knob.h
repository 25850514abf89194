/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What can be set for a job while it runs. Values are integers: an integer that somebody set means exactly
 * that. The numbers of the enum are stored (history database, recordings) and never renumbered.
 */

#include <stdint.h>

enum tuner_knob {
	/* The job's claim, all memory that the daemon sets aside for it: what its sessions need at least
	 * (struct stall_sample: need_bytes), read-ahead, and chunks that are kept. More may be in memory,
	 * borrowed until somebody wants the room. Bytes. */
	TUNER_CACHE_BYTES,
	/* Chunks read ahead of the windows that the sessions' next batches need, per session. */
	TUNER_PREFETCH_CHUNKS,
	/* Threads of the daemon that may verify, decode and gather for the job at one time. At least 1. */
	TUNER_DAEMON_WORKERS,
	/* Processes that run the job's Python transforms; 0: the trainer does it itself. */
	TUNER_CLIENT_WORKERS,
};
#define TUNER_N_KNOBS 4

struct tuner_knobs {
	uint64_t value[TUNER_N_KNOBS]; /* by enum tuner_knob */
};

/* "cache-bytes", "prefetch-chunks", "daemon-workers", "client-workers": as in `dieselctl set`. */
const char *tuner_knob_name(enum tuner_knob knob);
/* -EINVAL: no knob has that name. */
int tuner_knob_parse(const char *name, enum tuner_knob *ret);
