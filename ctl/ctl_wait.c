/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_wait.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "dataset/backend.h"
#include "dataset/writer.h"
#include "lib/clock.h"
#include "lib/units.h"

/* Maximum pauses. Their length is random, so that writers that collided once do not collide again. */
#define POLL_NS        (200 * NS_PER_MS)
#define FIRST_PAUSE_NS (100 * NS_PER_MS)
#define MAX_DOUBLINGS  2

/* Returns false if a signal asks to stop. */
static bool pause_up_to(uint64_t most_ns)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) < 0)
		random = clock_monotonic_ns();
	random = most_ns / 4 + random % (most_ns - most_ns / 4);
	const struct timespec t = {.tv_sec = (time_t)(random / NS_PER_S),
				   .tv_nsec = (long)(random % NS_PER_S)};

	return nanosleep(&t, NULL) == 0;
}

static void say_who(const struct ctl_wait *w, const struct writer_sign *sign, uint64_t left_ns)
{
	struct error text = ERROR_INIT;
	char who[WRITER_SIGN_NAME], time[24];

	error_set(&text, 0, "%s is being changed by %s; waiting for it to finish, for up to %s", w->dataset,
		  writer_sign_name(sign, who, sizeof(who)),
		  units_format_duration(time, sizeof(time), left_ns));
	ctl_warn(w->verb, text.text);
}

/* Takes over from a writer that shows no sign of life. Returns true if this process can continue. */
static bool take_over(const struct ctl_wait *w, const struct writer_sign *sign)
{
	struct error text = ERROR_INIT;
	char who[WRITER_SIGN_NAME], time[24];
	int r = writer_take_over(w->dataset, sign, &text);

	if (r == 0)
		error_set(&text, 0,
			  "%s: no sign of life from %s for %s; continuing without that writer, which can no "
			  "longer publish anything",
			  w->dataset, writer_sign_name(sign, who, sizeof(who)),
			  units_format_duration(time, sizeof(time), sign->lease_ns));
	if (text.text[0])
		ctl_warn(w->verb, text.text);
	return r == 0;
}

/* Waits for the current writer. A pause counts as that writer's silence only for its intended length,
 * because this process may also have been suspended. */
static bool wait_for_holder(struct ctl_wait *w)
{
	struct writer_sign before = {0}, sign;
	bool goes_on = true, said = w->n_tries > 0;
	uint64_t now_ns = clock_monotonic_ns(), quiet_ns = 0;

	while (goes_on && now_ns < w->until_ns && writer_at_work(w->dataset, &sign)) {
		if (!said)
			say_who(w, &sign, w->until_ns - now_ns);
		said = true;
		if (writer_sign_is_new(&sign, &before) || sign.is_kept)
			quiet_ns = 0;
		before = sign;
		if (quiet_ns > sign.lease_ns) {
			if (take_over(w, &sign))
				return true;
			quiet_ns = 0;
		}
		goes_on = pause_up_to(w->until_ns - now_ns < POLL_NS ? w->until_ns - now_ns : POLL_NS);
		uint64_t then_ns = clock_monotonic_ns();

		quiet_ns += then_ns - now_ns < POLL_NS ? then_ns - now_ns : POLL_NS;
		now_ns = then_ns;
	}
	return goes_on;
}

void ctl_wait_begin(struct ctl_wait *w)
{
	uint64_t now_ns = clock_monotonic_ns();

	w->until_ns = w->ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + w->ns;
	if (!backend_is_elsewhere(w->dataset))
		wait_for_holder(w);
}

bool ctl_wait_again(struct ctl_wait *w, int r)
{
	struct error text = ERROR_INIT;
	bool in_bucket = backend_is_elsewhere(w->dataset);
	unsigned doublings = w->n_tries < MAX_DOUBLINGS ? w->n_tries : MAX_DOUBLINGS;

	if (r != -EBUSY)
		return false;
	w->n_tries++;
	if (clock_monotonic_ns() >= w->until_ns && (!in_bucket || w->n_tries >= w->n_least))
		return false;
	if (!in_bucket)
		return pause_up_to(POLL_NS) && wait_for_holder(w);
	error_set(&text, 0, "%s: another writer has published meanwhile; continuing from its version",
		  w->dataset);
	ctl_warn(w->verb, text.text);
	return pause_up_to(FIRST_PAUSE_NS << doublings);
}
