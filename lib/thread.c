/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*run)(void *), void *context)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = -pthread_create(ret, NULL, run, context);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}
