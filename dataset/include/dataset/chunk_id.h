/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunk ids: text form, order, and a source of new ones.
 *
 * An id is big-endian time in us since 1970 (7 bytes), machine (4), process (3), counter (2), so that
 * memcmp order is creation order. One source gives strictly increasing ids, also when the clock stands
 * still or is set back, and never one at or below its floor (the newest id the dataset already has).
 *
 * Thread-safety: a source belongs to one thread at a time.
 */

#include "dataset/chunk.h"

struct chunk_id_source {
	uint32_t machine;
	uint32_t process; /* 24 bits are used */
	uint64_t time_us; /* of the newest id; 0: none yet */
	uint32_t counter;
};

/* floor: the newest id in use, or NULL. */
void chunk_id_source_init(struct chunk_id_source *source, uint32_t machine, uint32_t process,
			  const struct chunk_id *floor);

struct chunk_id chunk_id_next(struct chunk_id_source *source, uint64_t realtime_us);

/* As memcmp. */
int chunk_id_compare(const struct chunk_id *a, const struct chunk_id *b);

/* The time an id was made, us since 1970. */
uint64_t chunk_id_time_us(const struct chunk_id *id);

/* A number for this machine, from /etc/machine-id and the host's name. */
uint32_t chunk_id_local_machine(void);
