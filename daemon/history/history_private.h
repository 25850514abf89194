/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What history.c (opening, the thread) and history_queue.c (what others may call meanwhile) share.
 *
 * Locks: one, for the queue and the status. Nobody holding it writes to the disk or takes another lock, so
 * the loop waits for it only as long as it takes to copy a few fields.
 */

#include <pthread.h>

#include "history_file.h"

enum record_kind { RECORD_ENTRY, RECORD_VERDICT, RECORD_POINT, RECORD_ROUND, RECORD_END, RECORD_STATE };

struct record {
	struct record *next;
	enum record_kind kind;
	uint64_t at_ms;
	union {
		struct history_entry entry;
		struct tuner_verdict verdict;
		struct history_point point;
		struct tuner_config config; /* of a round */
		uint64_t job;               /* of an end */
		char key[32];               /* of a state */
	};
	size_t size;
	char data[]; /* of entry: its sample's text; of round and state: their bytes */
};

struct history {
	struct history_options options;
	char *path;
	int lock_fd;
	struct history_file *file; /* the thread's, once that runs; NULL after damage */
	pthread_t thread;
	bool started;
	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t wake;   /* CLOCK_MONOTONIC */
	struct record *first, **last;
	uint32_t n_queued;
	bool urgent, closing, done;
	struct history_status status;
};
