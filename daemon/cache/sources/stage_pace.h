/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether staging a dataset is worth while: how long a chunk takes from storage, and from the staging disk,
 * with all that belongs to it, divided by how many come at a time. Both are means over the last chunks, a
 * byte; what was not measured is not known, and is tried. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

struct stage_mean {
	double ns_per_byte;
	uint32_t n; /* measured */
};

/* A dataset's. */
struct stage_pace {
	struct stage_mean storage, staged;
	bool is_off; /* storage is no slower */
};

void stage_mean_add(struct stage_mean *m, uint64_t ns, uint64_t bytes);
/* The best instead: of single reads beside writes, most say more of these. */
void stage_best_add(struct stage_mean *m, uint64_t ns, uint64_t bytes);

/* Decides anew; disk: the best read of the staging disk alone, for as long as nothing of the dataset came
 * from there. Returns true if that has changed. */
bool stage_pace_decide(struct stage_pace *p, const struct stage_mean *disk);
