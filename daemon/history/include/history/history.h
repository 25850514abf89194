/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the tuner saw and did, on disk: one SQLite file that people may read with sqlite3(1) while the daemon
 * writes it. Bounded in size and age. It is a record, never a condition: when it cannot be written (full
 * disk, damage, no permission), what was to be written is dropped and counted, and serving goes on.
 *
 * Format: application_id 0x444c4831 ("DLH1"), user_version HISTORY_VERSION; times in ms since 1970.
 *   decisions(id, at_ms, job, job_name, uid, knob, rule, old_value, new_value, applied, rate_before,
 *             rate_expected, wait_before, wait_expected, reason, sample, decision,
 *             outcome, outcome_ms, rate_after, wait_after, outcome_text)
 *       One row a decision; `sample` is what was measured, as JSON; the last five are NULL until the effect
 *       is known. `decision` is the tuner's own number.
 *   samples(at_ms, job, seconds, rate, wait, fetch_stall, prep_stall, device, cache_bytes, prefetch, workers,
 *           client_workers)
 *       For plots: means over HISTORY_GRAIN_S seconds.
 *   rounds(at_ms, layout, config, data)
 *       What each round of the tuner was given, for replaying it: config is the id of a row of configs, data
 *       a uint64_t now_ns, struct stall_node and struct stall_sample[], as they lie in memory; layout tells
 *       whether this program's structs are the same.
 *   configs(id, at_ms, layout, data)
 *   state(key, value): what the daemon wants to have again after a restart.
 *
 * Reading at the start and all writing belong to different moments: history_open() opens, history_load_*()
 * read on the caller's thread, history_start() hands the file to a thread of its own behind a bounded queue.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"
#include "tuner/tuner.h"

#define HISTORY_VERSION 1
#define HISTORY_GRAIN_S 10

struct history;

struct history_options {
	const char *path;   /* of the file; its folder exists */
	uint64_t max_bytes; /* of the file; the oldest goes first. At least HISTORY_MIN_BYTES */
	uint64_t max_age_s;
};

#define HISTORY_MIN_BYTES (UINT64_C(1) << 20)

/* A decision as it is kept. */
struct history_entry {
	uint64_t at_ms;
	uint32_t uid; /* whose job it is */
	bool applied; /* false: dry run */
	bool has_verdict;
	uint64_t verdict_ms;
	char job_name[64];
	struct tuner_decision decision;
	struct tuner_verdict verdict;
	char *sample; /* JSON text or NULL */
};

/* The mean over some seconds of a job. */
struct history_point {
	uint64_t at_ms;
	uint64_t job;
	double seconds; /* covered */
	double rate, wait, fetch_stall, prep_stall, device;
	struct tuner_knobs knobs;
};

/*
 * Opens or makes the file. A damaged one is set aside as PATH.damaged (once: a second time it is -EBADMSG)
 * and a new one begun; notice says so then, else it is "", also after a failure. -EACCES, -ENOENT (its
 * folder), -ENOSPC, -EBUSY: another process keeps its history there; -EPROTONOSUPPORT: written by a newer
 * version.
 */
int history_open(const struct history_options *options, struct history **ret, char notice[256],
		 struct error *err);

/* For reading alone: the file stays as it is. */
int history_open_read(const char *path, struct history **ret, struct error *err);

/* -ENOENT: nothing is kept under this key. Caller frees the data. */
int history_load_state(struct history *h, const char *key, void **ret_data, size_t *ret_size,
		       struct error *err);

/* The newest `max` decisions, oldest first. visit takes entry->sample over. */
int history_load_entries(struct history *h, uint32_t max,
			 void (*visit)(void *user, struct history_entry *entry), void *user,
			 struct error *err);

/* One round as it was decided. */
struct history_round {
	uint64_t at_ms;
	uint64_t now_ns;
	const struct tuner_config *config;
	const struct stall_node *node;
	const struct stall_sample *samples;
	size_t n_samples;
};

/* All rounds by time, as long as visit returns 0; else its result. Rounds that another version of the program
 * has written are left out and counted. What visit is given is valid during the call. */
int history_load_rounds(struct history *h, int (*visit)(void *user, const struct history_round *round),
			void *user, uint64_t *ret_n_foreign, struct error *err);

/* Starts the writing thread. From here on: the calls below only. */
int history_start(struct history *h, struct error *err);

/* All of them copy; none waits or fails: what does not fit in the queue is dropped and counted. */
void history_add_entry(struct history *h, const struct history_entry *entry);
/* The verdict on the newest decision of its number. */
void history_add_verdict(struct history *h, uint64_t at_ms, const struct tuner_verdict *verdict);
void history_add_round(struct history *h, const struct history_round *round);
void history_add_point(struct history *h, const struct history_point *point);
void history_set_state(struct history *h, const char *key, const void *data, size_t size);

struct history_status {
	uint64_t n_written, n_dropped; /* records */
	uint64_t bytes;                /* of the file */
	char error[256];               /* why nothing can be written now; "" when it can */
};

void history_status_get(struct history *h, struct history_status *ret);

/* Writes what is queued, waiting at most a few seconds for the disk. NULL is fine. */
void history_close(struct history *h);
