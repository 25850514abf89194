/* SPDX-License-Identifier: Apache-2.0 */
#include "read_holds.h"

#include <stdbool.h>
#include <stddef.h>

static bool is_over(const struct read_hold *hold, uint64_t now_ns)
{
	return !hold->written_ns || hold->written_ns + READ_HOLD_AFTER_NS <= now_ns;
}

void read_holds_note(struct read_holds *h, uint32_t uid, dev_t storage, uint64_t job, uint64_t now_ns)
{
	struct read_hold *place = NULL;
	uint32_t n_own = 0;

	for (size_t i = 0; i < READ_HOLDS_MAX; i++) {
		struct read_hold *hold = &h->all[i];

		if (is_over(hold, now_ns)) {
			place = place ? place : hold;
		} else if (hold->uid == uid && hold->storage == storage) {
			hold->written_ns = now_ns; /* the same checkpoint continues; begin_ns stays */
			return;
		} else {
			n_own += hold->uid == uid;
		}
	}
	if (place && n_own < READ_HOLDS_OF_USER)
		*place = (struct read_hold){uid, storage, job, now_ns, now_ns};
}

void read_holds_end(struct read_holds *h, uint32_t uid, dev_t storage, uint64_t job)
{
	for (size_t i = 0; i < READ_HOLDS_MAX; i++) {
		struct read_hold *hold = &h->all[i];

		if (hold->uid == uid && hold->storage == storage && hold->job == job)
			*hold = (struct read_hold){0};
	}
}

uint64_t read_holds_until(const struct read_holds *h, uint32_t uid, dev_t storage, uint64_t now_ns,
			  uint64_t *ret_job)
{
	for (size_t i = 0; i < READ_HOLDS_MAX; i++) {
		const struct read_hold *hold = &h->all[i];
		uint64_t end_ns = hold->written_ns + READ_HOLD_AFTER_NS;

		if (is_over(hold, now_ns) || hold->uid != uid || hold->storage != storage)
			continue;
		if (end_ns > hold->begin_ns + READ_HOLD_MOST_NS)
			end_ns = hold->begin_ns + READ_HOLD_MOST_NS;
		*ret_job = hold->job;
		return now_ns < end_ns ? end_ns : 0;
	}
	return 0;
}
