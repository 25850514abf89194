/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Waits for other writers of a dataset (--wait). A dataset in a folder has one writer at a time, and the
 * others wait for it. In a bucket all writers work at the same time; a writer that publishes second starts
 * again from the version that was published first.
 */

#include "ctl.h"

struct ctl_wait {
	const struct option_verb *verb;
	const char *dataset;
	uint64_t ns;      /* duration of --wait; 0: no waiting */
	unsigned n_least; /* minimum number of attempts in a bucket, whatever their duration */
	uint64_t until_ns;
	unsigned n_tries;
};

/* Waits before the first try until nobody writes to the dataset, or time is up. Prints once which writer it
 * waits for. The process must not have the dataset open. */
void ctl_wait_begin(struct ctl_wait *w);

/* Pauses and returns true if the verb, which failed with r, must be tried again. */
bool ctl_wait_again(struct ctl_wait *w, int r);
