/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes what the kernel side summed about the job's reads out of its maps (usage.h), and makes records of it:
 * EVENT_PAGES, EVENT_READS and EVENT_READ_SIZES five times a second, EVENT_PLACE once, after ten seconds a
 * tenth of that; and a note with the path of each file and folder that these name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/event.h"

struct places;

typedef void (*places_emit)(void *user, const struct event *event);
typedef void (*places_note)(void *user, const char *kind, uint64_t key, const void *data, size_t size);

/* NULL: no memory. The maps stay the caller's. */
struct places *places_new(int totals_fd, int places_fd, places_emit emit, places_note note, void *user,
			  uint64_t now_ns);
void places_free(struct places *places);

/* Makes what is due; last: all there is. job: a process whose mounts may differ from ours. */
void places_step(struct places *places, pid_t job, uint64_t now_ns, bool last);
