/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The dataset object: all that is needed to open a session, and to reopen it. */

#include <pthread.h>

#include "client/transport.h"
#include "dataset/snapshot.h"
#include "dataset/store.h"
#include "client/elsewhere/shown.h"
#include "client/numbers/by_number.h"
#include "client/numbers/resident_reader.h"

struct diesel_dataset {
	char *path;
	char *socket_path;
	uint64_t wanted; /* requested version; 0: the newest */
	struct shown shown;
	bool is_fetched;             /* a process of the user's reads the chunks (elsewhere/fetch.h) */
	struct transport connection; /* keeps the dataset open in the daemon between sessions */
	struct snapshot *snapshot;   /* the daemon's copy, shared by every process of the node; only its
					tables are verified, so use dataset_look_up() for entries */
	struct store *store;         /* for diesel_dataset_read(); NULL: not opened yet */
	struct by_number *by_number; /* for diesel_dataset_read_many(), as the next one */
	struct resident_reader *residents;
	pthread_mutex_t store_lock;
};

/* Reads a sample's entry in the snapshot, after comparing its checksums before the first use. -ERANGE: no
 * such sample; -EBADMSG: the snapshot is damaged. */
int dataset_look_up(const struct diesel_dataset *d, uint64_t sample, struct snapshot_sample *ret);
/* Copies the error's line into the caller's buffer and returns its code. */
int report_error(const struct error *err, int code, char *text, size_t size);
