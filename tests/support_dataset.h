/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Small datasets whose samples identify themselves. */

#include "support.h"

#include <stdint.h>

/* Sample i has the path "c/<i>" and holds the number i over and over. */
struct dataset_plan {
	uint64_t n_samples;
	uint32_t bytes;     /* bytes of each sample, a multiple of 8, and not 0 */
	uint32_t spread;    /* limit on additional bytes, which differ by sample; 0: none */
	uint32_t giant;     /* bytes of the last sample; 0: as the others */
	uint64_t n_a_chunk; /* samples of a chunk; 0: as many as fit */
	uint32_t n_classes; /* number of classes (c, d, ...), with equal numbers of samples; 0: only c */
	bool digests;       /* with digests of the chunks' files */
};

/* Makes the dataset "folder/name", in chunks of the least size. Returns its path, which the caller frees. */
char *make_dataset(const char *folder, const char *name, const struct dataset_plan *plan);

/* Returns true if these bytes are exactly sample i. */
bool is_sample(const void *data, uint64_t bytes, uint64_t i);
