/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The dataset object: what it takes to open a session, and to open it again. */

#include <pthread.h>

#include "client/transport.h"
#include "dataset/snapshot.h"
#include "dataset/store.h"

struct diesel_dataset {
	char *path;
	char *socket_path;
	int dir_fd;
	int snapshot_fd;             /* opened with the caller's own rights: the proof that it may read */
	struct transport connection; /* keeps the dataset open in the daemon between sessions */
	struct snapshot *snapshot;   /* the daemon's verified copy, shared by every process of the node */
	struct store *store;         /* for diesel_dataset_read(); NULL: not asked yet */
	pthread_mutex_t store_lock;
};

/* Copies the error's line into the caller's buffer and returns its code. */
int report_error(const struct error *err, int code, char *text, size_t size);
