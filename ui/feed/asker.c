/* SPDX-License-Identifier: Apache-2.0 */
#include "asker.h"

#include <time.h>

#include "lib/clock.h"

static void *serve(void *user)
{
	struct asker *a = user;

	pthread_mutex_lock(&a->lock);
	while (!a->stops) {
		if (!a->is_asked) {
			pthread_cond_wait(&a->changed, &a->lock);
			continue;
		}
		a->is_asked = false;
		pthread_mutex_unlock(&a->lock);
		a->ask(a->user);
		pthread_mutex_lock(&a->lock);
		a->keep(a->user);
		a->tried_ns = clock_monotonic_ns();
		pthread_cond_broadcast(&a->changed);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

int asker_start(struct asker *a)
{
	pthread_condattr_t attributes;

	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	return -pthread_create(&a->thread, NULL, serve, a);
}

void asker_wait(struct asker *a, uint64_t now_ns, unsigned int ms)
{
	struct timespec until;
	int r = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(a->is_slow ? 0 : ms * NS_PER_MS);
	until.tv_sec += until.tv_nsec / (long)NS_PER_S;
	until.tv_nsec %= (long)NS_PER_S;
	pthread_mutex_lock(&a->lock);
	a->is_asked = true;
	pthread_cond_broadcast(&a->changed);
	while (r == 0 && a->tried_ns < now_ns)
		r = pthread_cond_timedwait(&a->changed, &a->lock, &until);
	a->is_slow = r != 0;
}

bool asker_stop(struct asker *a)
{
	pthread_mutex_lock(&a->lock);
	a->stops = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (a->is_slow) {
		pthread_detach(a->thread);
		return false;
	}
	pthread_join(a->thread, NULL);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	return true;
}
