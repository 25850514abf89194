/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a verb that changes a dataset does while another writer is in the way: --wait. A dataset in a folder
 * has one writer at a time, and the others wait for it; in a bucket they all go ahead, and who publishes
 * second begins anew with the version that was published first.
 */

#include "ctl.h"

struct ctl_wait {
	const struct option_verb *verb;
	const char *dataset;
	uint64_t ns;      /* --wait; 0: not at all */
	unsigned n_least; /* tries in a bucket, however long they take */
	uint64_t until_ns;
	unsigned n_tries;
};

/* Before the first try: returns when nobody writes to the dataset, or when time is up. Says once whom it
 * waits for. The process must not have the dataset open. */
void ctl_wait_begin(struct ctl_wait *w);

/* Returns true if the verb, which failed with r, is to be tried again, after a pause. */
bool ctl_wait_again(struct ctl_wait *w, int r);
