/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A thread of its own asks somebody who may hang, again and again while samples are taken, so that the screen
 * does not hang with him. The screen's thread calls the functions below. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct asker {
	void (*ask)(
	    void *user); /* in the thread, without the lock: gets an answer that only the thread sees */
	void (*keep)(
	    void *user); /* in the thread, with the lock: puts it where the screen's thread sees it */
	void *user;
	pthread_t thread;
	pthread_mutex_t lock; /* protects what follows, and the answers that are kept */
	pthread_cond_t changed;
	bool is_asked, stops;
	uint64_t tried_ns; /* when an answer, or none, came last; 0: never */
	bool is_slow;      /* the screen's own: no answer came in time last time */
};

/* Fills in all but ask, keep and user. Returns 0 or -errno. */
int asker_start(struct asker *a);
/* Asks, waits for up to `ms` for an answer that is newer than now_ns (not at all where the last one was
 * slow), and returns with the lock held. */
void asker_wait(struct asker *a, uint64_t now_ns, unsigned int ms);
/* Ends the thread. Returns false if it waits for an answer: it is left behind with all that it uses, since
 * the process ends anyway. */
bool asker_stop(struct asker *a);
