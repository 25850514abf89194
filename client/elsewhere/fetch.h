/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Datasets in a bucket. Neither this library nor the daemon accesses a bucket: a process of the caller's user
 * does, `dieselctl fetch`, with the credentials and the network that this user has (client/fetch_channel.h).
 * It reads chunks for the daemon, and ranges of them for us, until the last copy of the channel is closed.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/store.h"
#include "lib/error.h"
#include "shown.h"

/* Returns true if the name is a URL of a dataset outside the file system. */
bool fetch_is_elsewhere(const char *name);

/* Starts the process (start.h) that reads a version of the dataset (0: the newest) for the daemon at
 * socket_path. Waits until the process is ready. -ENOENT: no such dataset, version or program; -ECONNREFUSED:
 * no daemon; -EACCES; -EINTR; else the errors of bucket.h. */
int fetch_start(const char *url, uint64_t version, const char *socket_path, struct shown *ret,
		struct error *err);

/* Opens a read-only store that reads through the channel, which stays the caller's. */
int fetch_store_open(const char *url, int channel_fd, struct store **ret, struct error *err);
