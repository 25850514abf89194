/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_wait.h"

#include <errno.h>
#include <stdio.h>

#include "dataset/backend.h"
#include "dataset/writer.h"
#include "lib/clock.h"
#include "lib/units.h"

/* maximum pauses */
#define POLL_NS        (200 * NS_PER_MS)
#define FIRST_PAUSE_NS (100 * NS_PER_MS)
#define MAX_DOUBLINGS  2

static void say_who(const struct writer_sign *sign, uint64_t left_ns, void *context)
{
	const struct ctl_wait *w = context;
	struct error text = ERROR_INIT;
	char who[WRITER_SIGN_NAME], time[24];

	error_set(&text, 0, "%s is being changed by %s; waiting for it to finish, for up to %s", w->dataset,
		  writer_sign_name(sign, who, sizeof(who)),
		  units_format_duration(time, sizeof(time), left_ns));
	ctl_warn(w->verb, text.text);
}

/* Reports a take-over (0), or why it failed. */
static void say_taken(const struct writer_sign *sign, int r, const struct error *why, void *context)
{
	const struct ctl_wait *w = context;
	struct error text = *why;
	char who[WRITER_SIGN_NAME], time[24];

	if (r == 0)
		error_set(&text, 0,
			  "%s: no sign of life from %s for %s; continuing without that writer, which can no "
			  "longer publish anything",
			  w->dataset, writer_sign_name(sign, who, sizeof(who)),
			  units_format_duration(time, sizeof(time), sign->lease_ns));
	if (text.text[0])
		ctl_warn(w->verb, text.text);
}

static bool wait_for_holder(struct ctl_wait *w)
{
	const struct writer_wait wait = {
	    .dataset = w->dataset,
	    .until_ns = w->until_ns,
	    .poll_ns = POLL_NS,
	    .waits = w->n_tries ? NULL : say_who,
	    .taken = say_taken,
	    .context = w,
	};

	return writer_wait(&wait);
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
		return writer_pause(POLL_NS) && wait_for_holder(w);
	error_set(&text, 0, "%s: another writer has published meanwhile; continuing from its version",
		  w->dataset);
	ctl_warn(w->verb, text.text);
	return writer_pause(FIRST_PAUSE_NS << doublings);
}
