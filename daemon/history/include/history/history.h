/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The measurements and decisions of the tuner on disk: one SQLite file that people may read with sqlite3(1)
 * while the daemon writes it. Bounded in size and age. Serving never depends on it: when it cannot be written
 * (full disk, damage, no permission), records are dropped and counted, and serving continues.
 *
 * Format: application_id 0x444c4831 ("DLH1"), user_version HISTORY_VERSION; times in ms since 1970.
 *   decisions(id, at_ms, job, job_name, uid, knob, rule, old_value, new_value, applied, rate_before,
 *             rate_expected, wait_before, wait_expected, reason, sample, decision,
 *             outcome, outcome_ms, rate_after, wait_after, outcome_text)
 *       One row per decision; `sample` has the measurements as JSON; the last five are NULL until the effect
 *       is known. `decision` is the tuner's own number.
 *   samples(at_ms, job, seconds, rate, wait, fetch_stall, prep_stall, device, cache_bytes, prefetch, workers,
 *           client_workers)
 *       For plots: means over the seconds of HISTORY_GRAIN_S in which the figure was known; NULL: in none.
 *   rounds(at_ms, layout, config, data)
 *       Input of each round of the tuner, for a replay. config is the id of a row of configs. data is a
 *       uint64_t now_ns, struct stall_node and struct stall_sample[], in their memory layout. layout tells
 *       whether this program's structs have the same layout. With 1 for a layout and 0 for config: a job was
 *       forgotten between two rounds, and data is its number as a uint64_t; 0: all were.
 *   configs(id, at_ms, layout, data) state(key, value): the data that the daemon restores after a restart.
 *
 * All reads precede all writes: history_open() opens the file, history_load_*() read it on the caller's
 * thread, and history_start() hands it to a thread of its own behind a bounded queue.
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
	const char *path;   /* path of the file; its folder must exist */
	uint64_t max_bytes; /* limit of the file, at least HISTORY_MIN_BYTES; the oldest records are deleted
			       first */
	uint64_t max_age_s;
};

#define HISTORY_MIN_BYTES (UINT64_C(1) << 20)

/* A recorded decision. */
struct history_entry {
	uint64_t at_ms;
	uint32_t uid; /* user of the job */
	bool applied; /* false: dry run */
	bool has_verdict;
	uint64_t verdict_ms;
	char job_name[64];
	struct tuner_decision decision;
	struct tuner_verdict verdict;
	char *sample; /* JSON text or NULL */
};

/* Mean over some seconds of a job. */
struct history_point {
	uint64_t at_ms;
	uint64_t job;
	double seconds; /* covered */
	/* NAN: unknown in all of these seconds. */
	double rate, wait, fetch_stall, prep_stall, device;
	struct tuner_knobs knobs;
};

/*
 * Opens or creates the file. Sets a damaged file aside as PATH.damaged, starts a new one, and reports this in
 * notice, which is "" otherwise. -EBADMSG: the file is damaged, and PATH.damaged exists already. -EEXIST: it
 * is not a history. -EACCES, -ENOENT (its folder), -ENOSPC, -EBUSY: another process keeps its history there;
 * -EPROTONOSUPPORT: written by a newer version.
 */
int history_open(const struct history_options *options, struct history **ret, char notice[256],
		 struct error *err);

/* Opens the file read-only. */
int history_open_read(const char *path, struct history **ret, struct error *err);

/* Reads the data stored under a key, which the caller frees. -ENOENT: nothing is stored under it. */
int history_load_state(struct history *h, const char *key, void **ret_data, size_t *ret_size,
		       struct error *err);

/* Visits the newest `max` decisions, oldest first. visit takes ownership of entry->sample. */
int history_load_entries(struct history *h, uint32_t max,
			 void (*visit)(void *user, struct history_entry *entry), void *user,
			 struct error *err);

/* A recorded round, or a job that was forgotten between two rounds. */
struct history_round {
	/* NULL: a round. Otherwise only at_ms is set, and this job was forgotten; 0: all jobs. */
	const uint64_t *ended;
	uint64_t at_ms;
	uint64_t now_ns;
	const struct tuner_config *config;
	const struct stall_node *node;
	const struct stall_sample *samples;
	size_t n_samples;
};

/* Visits all rounds in order of time, as long as visit returns 0, and returns its last result. Skips and
 * counts rounds that another version of the program wrote. Arguments of visit are valid during the call. */
int history_load_rounds(struct history *h, int (*visit)(void *user, const struct history_round *round),
			void *user, uint64_t *ret_n_foreign, struct error *err);

/* Starts the writing thread. Afterwards, only the functions below may be called. */
int history_start(struct history *h, struct error *err);

/* The history_add functions copy their arguments, and neither wait nor fail: records that do not fit in the
 * queue are dropped and counted. */
void history_add_entry(struct history *h, const struct history_entry *entry);
/* Adds the verdict on the newest decision with this number. */
void history_add_verdict(struct history *h, uint64_t at_ms, const struct tuner_verdict *verdict);
void history_add_round(struct history *h, const struct history_round *round);
/* Records that the tuner forgot this job; 0: all jobs. */
void history_add_end(struct history *h, uint64_t at_ms, uint64_t job);
void history_add_point(struct history *h, const struct history_point *point);
void history_set_state(struct history *h, const char *key, const void *data, size_t size);

struct history_status {
	uint64_t n_written, n_dropped; /* records */
	uint64_t bytes;                /* size of the file */
	char error[256];               /* why writing fails now; "" if it works */
	char aside[256]; /* notice that a damaged file was set aside after the start; "": none */
};

void history_status_get(struct history *h, struct history_status *ret);

/* Writes the queued records, waiting at most a few seconds for the disk. Accepts NULL. */
void history_close(struct history *h);
