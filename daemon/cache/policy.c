/* SPDX-License-Identifier: Apache-2.0 */
#include "policy.h"

#include "lib/minmax.h"

/* safety factor for measured times, which are not exact: rather too early than too late */
#define LATE 1.2

uint32_t policy_default_window(uint64_t cache_bytes, uint64_t segment_bytes, uint64_t n_chunks,
			       uint32_t wanted)
{
	/* A batch at a window's edge needs two windows, and limiting them to a quarter of the budget leaves
	 * space for others. */
	uint64_t fits = cache_bytes / 4 / (2 * segment_bytes);
	uint64_t window = min_u64(wanted, n_chunks);

	if (n_chunks * segment_bytes > cache_bytes / 2)
		window = min_u64(window, fits);
	return window > 0 ? (uint32_t)window : 1;
}

uint32_t policy_fit_slots(uint32_t wanted, uint32_t least, uint64_t slot_bytes, uint64_t available_bytes)
{
	while (wanted > least && wanted * slot_bytes > available_bytes / 4)
		wanted--;
	return wanted;
}

uint64_t policy_join_need(uint64_t n_chunks, uint64_t reserved, uint64_t need)
{
	return min_u64(n_chunks, reserved + need);
}

uint64_t policy_share_out(struct policy_share *shares, size_t n, uint64_t limit)
{
	uint64_t wanted = 0, transient = 0;

	for (size_t i = 0; i < n; i++) {
		struct policy_share *s = &shares[i];

		s->cap = min_u64(s->asked > s->need ? s->asked : s->need, s->all);
		wanted += s->cap;
		transient += min_u64(s->ahead, s->cap);
	}
	for (size_t i = 0; i < n; i++) {
		struct policy_share *s = &shares[i];
		uint64_t moving = min_u64(s->ahead, s->cap);

		/* With the whole dataset in memory, nothing is transient. */
		s->keep = s->cap == s->all ? s->all : s->cap - moving;
	}
	if (wanted <= limit)
		return limit;
	return limit > transient ? limit - transient : 0;
}

void policy_borrow(struct policy_share *shares, size_t n, uint64_t bytes)
{
	size_t left = 0;

	for (size_t i = 0; i < n; i++) {
		shares[i].asked = shares[i].cap;
		left += shares[i].asked < shares[i].all;
	}
	while (left > 0 && bytes >= left) {
		uint64_t part = bytes / left;

		left = 0;
		for (size_t i = 0; i < n; i++) {
			uint64_t more = min_u64(part, shares[i].all - shares[i].asked);

			shares[i].asked += more;
			bytes -= more;
			left += shares[i].asked < shares[i].all;
		}
	}
}

uint64_t policy_dataset_part(uint64_t job_bytes, uint64_t dataset_bytes, uint64_t all_bytes)
{
	if (job_bytes >= all_bytes || all_bytes == 0)
		return job_bytes;
	return (uint64_t)((double)job_bytes * ((double)dataset_bytes / (double)all_bytes));
}

uint32_t policy_next_use(const struct policy_cursor *k, uint64_t chunk)
{
	bool is_now = k->now[chunk] != POLICY_NEVER;

	if (is_now && k->now[chunk] >= k->at)
		return k->now[chunk] - k->at;
	/* The next visit is in the next epoch, where the chunk may be in another lane; at that epoch's end if
	 * its order is unknown. */
	if (k->then ? k->then[chunk] == POLICY_NEVER : !is_now)
		return POLICY_NEVER;
	return k->n_visits - k->at + (k->then ? k->then[chunk] : k->n_visits);
}

uint32_t policy_reach(uint64_t n_chunks)
{
	return n_chunks < 2 ? 1 : (uint32_t)min_u64(n_chunks / 2, POLICY_NEVER);
}

uint32_t policy_far_reach(uint64_t n_chunks)
{
	uint64_t reach = n_chunks - n_chunks / 5;

	return reach < 1 ? 1 : (uint32_t)min_u64(reach, POLICY_NEVER);
}

bool policy_is_late(double read_ns, uint32_t n, double use_ns, uint32_t visits)
{
	return n > 0 && LATE * read_ns * n >= use_ns * visits;
}

uint32_t policy_reads_meanwhile(double read_ns, double use_ns, uint32_t visits)
{
	double n = read_ns > 0 ? use_ns * visits / read_ns : visits;

	return (n < visits ? (uint32_t)n : visits) + 1;
}

uint32_t policy_victim_rank(const struct policy_segment *s, uint32_t distance)
{
	if (s->busy)
		return 0;
	if (s->empty)
		return POLICY_RANK_UNWANTED + 5;
	if (s->idle)
		return POLICY_RANK_UNWANTED + 4;
	if (s->beyond_quota && s->distance > 0)
		return POLICY_RANK_UNWANTED + 3;
	if (s->distance == POLICY_NEVER && (!s->kept || (s->ordered && s->own))) {
		bool early = distance > 0 && distance != POLICY_NEVER &&
			     (s->next_use <= distance || distance > s->reach);

		if (!s->ordered || !early)
			return POLICY_RANK_UNWANTED + (s->foreign ? 2 : !s->own && s->excess);
	}
	if (distance > 0 || s->distance == 0)
		return 0;
	return s->distance == POLICY_NEVER ? 3 : 2;
}

bool policy_is_better_victim(const struct policy_segment *a, const struct policy_segment *b)
{
	if (a->distance != b->distance)
		return a->distance > b->distance;
	if (a->next_use != b->next_use)
		return a->next_use > b->next_use;
	return a->last_use < b->last_use;
}
