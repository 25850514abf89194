/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunk ids: text form, order, and a source of new ones.
 *
 * dataset/chunk.h says what an id is made of. The ids of one source increase strictly, also when the clock
 * stands still or is set back, and all are above its floor: the newest id that the dataset already has.
 *
 * Thread-safety: a source belongs to one thread at a time.
 */

#include "dataset/chunk.h"

struct chunk_id_source {
	uint32_t machine;
	uint32_t process; /* 24 bits are used */
	uint64_t time_us; /* time of the newest id; 0: no id yet */
	uint32_t counter;
};

/* Initialises the source. floor is the newest id in use, or NULL. */
void chunk_id_source_init(struct chunk_id_source *source, uint32_t machine, uint32_t process,
			  const struct chunk_id *floor);

struct chunk_id chunk_id_next(struct chunk_id_source *source, uint64_t realtime_us);

/* Compares like memcmp(): an older id is less than a newer one. */
int chunk_id_compare(const struct chunk_id *a, const struct chunk_id *b);

/* Returns true if the id is in this list, which is in ascending order. */
bool chunk_id_is_among(const struct chunk_id *ids, size_t n, const struct chunk_id *id);

/* Returns the time at which the id was made, in us since 1970. */
uint64_t chunk_id_time_us(const struct chunk_id *id);

/* Returns a number that identifies this machine, made from /etc/machine-id and the host name. */
uint32_t chunk_id_local_machine(void);
