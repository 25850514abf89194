/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "lib/sorted.h"
#include "waits.h"

#define SHORT_RATIO 8

/* Returns the length L such that half of the total wait time is in waits of at least L. */
static uint64_t usual_wait(const struct data_waits *waits, uint64_t *scratch)
{
	uint64_t sum_ns = 0, so_far_ns = 0;
	size_t i = 0;

	for (size_t k = 0; k < waits->n; k++) {
		scratch[k] = waits->items[k].end_ns - waits->items[k].begin_ns;
		sum_ns += scratch[k];
	}
	qsort(scratch, waits->n, sizeof(*scratch), compare_u64);
	for (; i < waits->n && 2 * (so_far_ns + scratch[i]) < sum_ns; i++)
		so_far_ns += scratch[i];
	return i < waits->n ? scratch[i] : 0;
}

size_t data_waits_handovers(const struct data_waits *waits, uint64_t *ret_times)
{
	uint64_t usual_ns = usual_wait(waits, ret_times);
	size_t n = 0;

	for (size_t i = 0; i < waits->n; i++)
		if (SHORT_RATIO * (waits->items[i].end_ns - waits->items[i].begin_ns) >= usual_ns)
			ret_times[n++] = waits->items[i].end_ns;
	return n;
}
