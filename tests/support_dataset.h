/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small datasets, of which every sample says which one it is. */

#include "support.h"

#include <stdint.h>

/* Sample i has the path "c/<i>" and is the number i over and over. */
struct dataset_plan {
	uint64_t n_samples;
	uint32_t bytes;     /* of each: a multiple of 8, and not 0 */
	uint32_t spread;    /* at most this many more bytes, different ones; 0: all are equal */
	uint32_t giant;     /* bytes of the last one, where it is another size */
	uint64_t n_a_chunk; /* samples; 0: as many as fit */
	uint32_t n_classes; /* c, d, ..., with equal numbers of samples; 0: only c */
	bool digests;       /* of the chunks' files */
};

/* Makes the dataset "folder/name", in chunks of the least size. Returns its path, to be freed. */
char *make_dataset(const char *folder, const char *name, const struct dataset_plan *plan);

/* Returns true if these bytes are sample i, to the last one. */
bool is_sample(const void *data, uint64_t bytes, uint64_t i);
