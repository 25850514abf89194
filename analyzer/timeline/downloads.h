/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sockets that a thread receives data from: an object store, a cache, a data service. They are recognised by
 * what goes through them: far more comes in than goes out. Collectives between ranks send as much as they
 * receive.
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

/* Returns true if the call reads a file, looks for one or closes it, or receives data. */
bool downloads_touches(const struct downloads *downloads, const struct timeline_call *call);
