/* SPDX-License-Identifier: Apache-2.0 */
#include "slices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/array.h"
#include "lib/clock.h"

#define MINUTE_NS 60e9

static int slice_open(struct slices *slices, uint64_t now_ns)
{
	if (array_reserve(slices->items, slices->n, slices->n_allocated) < 0)
		return -ENOMEM;
	slices->items[slices->n++] = (struct slice){.id = slices->next_id++, .begin_ns = now_ns};
	return 0;
}

/* Sets the budget to `bytes` for the next minute, in which the budget does not grow. */
static void budget_give(struct slices *slices, uint64_t bytes, uint64_t now_ns)
{
	slices->tokens = slices->tokens_max = (double)bytes;
	slices->filled_ns = now_ns + (uint64_t)MINUTE_NS;
}

int slices_init(struct slices *slices, struct slices_config config, uint64_t now_ns)
{
	*slices =
	    (struct slices){.config = config, .next_id = 1, .now_ns = now_ns, .first_end_ns = UINT64_MAX};
	budget_give(slices, config.startup_bytes, now_ns);
	return slice_open(slices, now_ns);
}

void slices_steps_begin(struct slices *slices, uint64_t now_ns)
{
	budget_give(slices, slices->config.first_bytes, now_ns);
	slices->first_end_ns = slices->filled_ns;
}

void slices_free(struct slices *slices)
{
	free(slices->items);
	*slices = (struct slices){0};
}

bool slices_on(const struct slices *slices)
{
	return slices->n && !slices->items[slices->n - 1].end_ns;
}

/* Estimates the bytes of a slice of minimum length, from the slices so far. */
static double slice_price(const struct slices *slices)
{
	uint64_t ns = 0, bytes = 0;

	for (size_t i = 0; i < slices->n; i++) {
		ns += slices->items[i].end_ns - slices->items[i].begin_ns;
		bytes += slices->items[i].bytes;
	}
	return ns ? (double)bytes * ((double)SLICE_MIN_NS / (double)ns) : 0;
}

static void budget_step(struct slices *slices, uint64_t now_ns, uint64_t written_bytes)
{
	slices->tokens -= (double)(written_bytes - slices->seen_bytes);
	slices->seen_bytes = written_bytes;
	if (now_ns >= slices->first_end_ns) {
		slices->tokens_max = (double)slices->config.burst_bytes;
		slices->first_end_ns = UINT64_MAX;
	}
	if (now_ns > slices->filled_ns) {
		slices->tokens += (double)slices->config.bytes_per_minute *
				  ((double)(now_ns - slices->filled_ns) / MINUTE_NS);
		slices->filled_ns = now_ns;
	}
	if (slices->tokens > slices->tokens_max)
		slices->tokens = slices->tokens_max;
}

int slices_step(struct slices *slices, uint64_t now_ns, uint64_t written_bytes, uint64_t detail_bytes)
{
	struct slice *last = &slices->items[slices->n - 1];
	uint64_t bytes = detail_bytes - slices->seen_detail_bytes;
	int r;

	if (!slices->config.bytes_per_minute || now_ns < slices->now_ns)
		return SLICES_AS_BEFORE;
	slices->now_ns = now_ns;
	budget_step(slices, now_ns, written_bytes);
	slices->seen_detail_bytes = detail_bytes;
	slices->kept_bytes += bytes;
	last->bytes += bytes; /* late detail belongs to the slice that ended */
	if (slices_on(slices)) {
		if (slices->tokens > 0 || (now_ns - last->begin_ns < SLICE_MIN_NS &&
					   slices->tokens > -(double)slices->config.burst_bytes))
			return SLICES_AS_BEFORE;
		last->end_ns = now_ns;
		return SLICES_OFF;
	}
	/* Waits until the budget pays for a slice of minimum length, because short slices lose too much at
	 * their edges. */
	if (slices->tokens < (double)slices->config.burst_bytes && slices->tokens < slice_price(slices))
		return SLICES_AS_BEFORE;
	r = slice_open(slices, now_ns);
	return r < 0 ? r : SLICES_ON;
}

bool slices_drop(struct slices *slices, struct slice *ret_slice)
{
	size_t best = 0;
	uint64_t best_ns = UINT64_MAX;

	if (!slices->config.total_bytes || slices->kept_bytes <= slices->config.total_bytes)
		return false;
	for (size_t i = 1; i + 1 < slices->n; i++) {
		uint64_t hole_ns = slices->items[i + 1].begin_ns - slices->items[i - 1].end_ns;

		if (hole_ns < best_ns) {
			best_ns = hole_ns;
			best = i;
		}
	}
	if (!best)
		return false;
	*ret_slice = slices->items[best];
	slices->kept_bytes -= slices->items[best].bytes;
	memmove(&slices->items[best], &slices->items[best + 1],
		(slices->n - best - 1) * sizeof(*slices->items));
	slices->n--;
	return true;
}
