/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decides whether staging a dataset is worthwhile: compares the time that a chunk takes from storage and from
 * the staging disk, all overhead included, divided by the number of chunks in progress. Both are means over
 * the latest chunks, per byte. An unmeasured source is unknown, and is tried. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

struct stage_mean {
	double ns_per_byte;
	uint32_t n; /* number of measurements; stage_mean_add() stops counting at PART */
};

/* The pace of one dataset. */
struct stage_pace {
	struct stage_mean storage, staged;
	bool is_off; /* staging is off: storage is at least as fast */
};

void stage_mean_add(struct stage_mean *m, uint64_t ns, uint64_t bytes);
/* As stage_mean_add(), but keeps the best value: the time of most reads next to writes depends more on the
 * writes. */
void stage_best_add(struct stage_mean *m, uint64_t ns, uint64_t bytes);

/* Decides again. disk: the best read from the staging disk, used until enough of the dataset's chunks were
 * read from it. Returns true if the decision changed. */
bool stage_pace_decide(struct stage_pace *p, const struct stage_mean *disk);
