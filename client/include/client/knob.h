/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The knobs of a job: dieseld's tuner sets them, an operator may pin them, and `dieselctl` and diesel-top
 * show them. One row of tuner_knob_table describes all properties of a knob; code that handles all knobs
 * loops over the table.
 *
 * Values are integers, and a value that was set is applied exactly. The enum's numbers are stored
 * (history database, recordings): a new knob goes to the end.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"

enum tuner_knob {
	/* The job's claim, all memory that the daemon reserves for it: the minimum of its sessions
	 * (need_bytes of struct stall_sample), read-ahead, and cached chunks. More may be in memory,
	 * borrowed until another job needs the memory. */
	TUNER_CACHE_BYTES,
	/* Chunks read ahead of the windows that the sessions' next batches need, per session. */
	TUNER_PREFETCH_CHUNKS,
	/* Threads of the daemon that may verify, decode and gather for the job at one time. At least 1. */
	TUNER_DAEMON_WORKERS,
	/* Processes that run the job's Python transforms; 0: the trainer does it itself. */
	TUNER_CLIENT_WORKERS,
	/* Limit of memory for cached decoded copies of samples, if the daemon decodes. The copies use only
	 * memory that nobody claims. */
	TUNER_DECODED_BYTES,
};
#define TUNER_N_KNOBS 5

/* Values of knobs that nobody has set: for knobs in numbers, and in bytes. */
#define TUNER_FREE_NUMBER UINT32_MAX
#define TUNER_FREE_BYTES  UINT64_MAX

struct tuner_knob_info {
	const char *name;          /* name in JSON, texts and the history, and accepted by `dieselctl set` */
	const char *setting;       /* name in `dieselctl set` and the configuration */
	const char *saved;         /* name in the state that the daemon saves for its restart */
	bool bytes;                /* the value is in bytes; otherwise a number */
	uint64_t free;             /* its value while nobody has set it; every valid setting is lower */
	enum wire_setting_key key; /* setting that pins the knob */
	enum wire_setting_key limit; /* setting that limits the knob; has the same range */
};

extern const struct tuner_knob_info tuner_knob_table[TUNER_N_KNOBS]; /* indexed by enum tuner_knob */

/* Returns the name from tuner_knob_table, or "?". */
const char *tuner_knob_name(enum tuner_knob knob);
/* Finds the knob with this name. -EINVAL: no such knob. */
int tuner_knob_parse(const char *name, enum tuner_knob *ret);
/* Finds the knob that a setting pins. -EINVAL: the setting pins no knob. */
int tuner_knob_of_key(enum wire_setting_key key, enum tuner_knob *ret);
