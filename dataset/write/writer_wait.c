/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/writer.h"

#include <sys/random.h>
#include <time.h>

#include "lib/clock.h"

bool writer_pause(uint64_t most_ns)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0)
		random = clock_monotonic_ns();
	random = most_ns / 4 + random % (most_ns - most_ns / 4 + 1);
	const struct timespec t = {.tv_sec = (time_t)(random / NS_PER_S),
				   .tv_nsec = (long)(random % NS_PER_S)};

	return nanosleep(&t, NULL) == 0;
}

/* Takes over from a writer that shows no sign of life. Returns true if this process can continue. */
static bool take_over(const struct writer_wait *w, const struct writer_sign *sign)
{
	struct error why = ERROR_INIT;
	int r = writer_take_over(w->dataset, sign, &why);

	if (w->taken)
		w->taken(sign, r, &why, w->context);
	return r == 0;
}

/* A pause counts as the other writer's silence only for its intended length, because this process may also
 * have been suspended. */
bool writer_wait(const struct writer_wait *w)
{
	struct writer_sign before = {0}, sign;
	bool goes_on = true, said = !w->waits;
	uint64_t now_ns = clock_monotonic_ns(), quiet_ns = 0;

	while (goes_on && now_ns < w->until_ns && writer_at_work(w->dataset, &sign)) {
		if (!said)
			w->waits(&sign, w->until_ns - now_ns, w->context);
		said = true;
		if (writer_sign_is_new(&sign, &before) || sign.is_kept)
			quiet_ns = 0;
		before = sign;
		if (quiet_ns > sign.lease_ns) {
			if (take_over(w, &sign))
				return true;
			quiet_ns = 0;
		}
		goes_on = writer_pause(w->until_ns - now_ns < w->poll_ns ? w->until_ns - now_ns : w->poll_ns);
		uint64_t then_ns = clock_monotonic_ns();

		quiet_ns += then_ns - now_ns < w->poll_ns ? then_ns - now_ns : w->poll_ns;
		now_ns = then_ns;
	}
	return goes_on;
}
