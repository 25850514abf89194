/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sockets from which a thread receives data: an object store, a cache, a data service. They are recognised by
 * their traffic: far more comes in than goes out. Collectives between ranks send as much as they receive.
 */

#include <stdbool.h>

#include "timeline.h"

struct downloads {
	uint64_t *inodes; /* ascending */
	size_t n;
};

/* -ENOMEM. */
int downloads_find(const struct timeline_thread *thread, struct downloads *ret_downloads);
void downloads_free(struct downloads *downloads);

/* Returns true if the call reads, looks up or closes a file, or receives data. */
bool downloads_touches(const struct downloads *downloads, const struct timeline_call *call);
