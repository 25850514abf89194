/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_wait.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "dataset/meta.h"
#include "dataset/place.h"
#include "lib/clock.h"
#include "lib/units.h"

/* Pauses are random up to this, so that writers that met once do not meet again. */
#define POLL_NS        (200 * NS_PER_MS)
#define FIRST_PAUSE_NS (100 * NS_PER_MS)
#define MAX_DOUBLINGS  2

int ctl_wait_option(const struct ctl_verb *verb, uint64_t *ret_ns)
{
	return units_parse_duration(optarg, ret_ns) < 0
		   ? ctl_usage(verb, "--wait %s: a time such as 60 or 5m is needed", optarg)
		   : CTL_OK;
}

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

static void say_who(const struct ctl_wait *w, pid_t pid, uint64_t left_ns)
{
	struct error text = ERROR_INIT;
	char who[40] = "another dieselctl", time[24];

	if (pid > 0)
		snprintf(who, sizeof(who), "process %ld", (long)pid);
	error_set(&text, 0, "%s is being changed by %s: waiting for it, %s at most", w->dataset, who,
		  units_format_duration(time, sizeof(time), left_ns));
	ctl_warn(w->verb, text.text);
}

static bool wait_for_holder(struct ctl_wait *w)
{
	bool goes_on = true, said = w->n_tries > 0;
	uint64_t now_ns = clock_monotonic_ns();
	pid_t pid;

	for (; goes_on && now_ns < w->until_ns && meta_is_held(w->dataset, &pid);
	     now_ns = clock_monotonic_ns()) {
		if (!said)
			say_who(w, pid, w->until_ns - now_ns);
		said = true;
		goes_on = pause_up_to(w->until_ns - now_ns < POLL_NS ? w->until_ns - now_ns : POLL_NS);
	}
	return goes_on;
}

void ctl_wait_begin(struct ctl_wait *w)
{
	uint64_t now_ns = clock_monotonic_ns();

	w->until_ns = w->ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + w->ns;
	if (!place_is_elsewhere(w->dataset))
		wait_for_holder(w);
}

bool ctl_wait_again(struct ctl_wait *w, int r)
{
	struct error text = ERROR_INIT;
	bool in_bucket = place_is_elsewhere(w->dataset);
	unsigned doublings = w->n_tries < MAX_DOUBLINGS ? w->n_tries : MAX_DOUBLINGS;

	if (r != -EBUSY)
		return false;
	w->n_tries++;
	if (clock_monotonic_ns() >= w->until_ns && (!in_bucket || w->n_tries >= w->n_least))
		return false;
	if (!in_bucket)
		return pause_up_to(POLL_NS) && wait_for_holder(w);
	error_set(&text, 0, "%s: another writer has published meanwhile; going on from its version",
		  w->dataset);
	ctl_warn(w->verb, text.text);
	return pause_up_to(FIRST_PAUSE_NS << doublings);
}
