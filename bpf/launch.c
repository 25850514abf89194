/* SPDX-License-Identifier: Apache-2.0 */
#include "private.h"

#include "lib/launch.h"

int collector_launch(struct collector *collector, char *const argv[], const sigset_t *signals, pid_t *ret_pid,
		     struct error *err)
{
	struct launch launch;
	int r = launch_prepare(argv, signals, &launch, err);

	if (r)
		return r;
	r = collector_tag(collector, launch.pid, err);
	if (r) {
		launch_abandon(&launch);
		return r;
	}
	r = launch_go(&launch, err);
	if (!r)
		*ret_pid = launch.pid;
	return r;
}
