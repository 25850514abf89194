/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes the kernel side's sums of the job's reads out of its maps (usage.h) and makes records of them:
 * EVENT_PAGES, EVENT_READS and EVENT_READ_SIZES five times per second, EVENT_PLACE once per second; after ten
 * seconds, all records are made a tenth as often. Each file and folder in a record gets a metadata entry with
 * its path.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/event.h"

struct places;

typedef void (*places_emit)(void *user, const struct event *event);
typedef void (*places_note)(void *user, const char *kind, uint64_t key, const void *data, size_t size);

/* Returns NULL if memory runs out. The caller keeps the maps. */
struct places *places_new(int totals_fd, int places_fd, places_emit emit, places_note metadata, void *user,
			  uint64_t now_ns);
void places_free(struct places *places);

/* Makes the records that are due or, if `last`, all remaining ones. job is a process whose mounts may
 * differ from ours. */
void places_step(struct places *places, pid_t job, uint64_t now_ns, bool last);
