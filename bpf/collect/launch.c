/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include "lib/launch.h"

static int tag(void *user, pid_t pid, struct error *err)
{
	return collector_tag(user, pid, err);
}

int collector_launch(struct collector *collector, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		     struct error *err)
{
	return launch_watched(argv, signals, tag, collector, ret_pid, err);
}
