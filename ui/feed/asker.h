/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A thread that sends requests to a peer that may hang, so that the screen's thread never hangs. The thread
 * repeats the request while samples are taken. The screen's thread calls the functions below. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct asker {
	void (*ask)(void *user);  /* runs on the thread, without the lock: gets an answer */
	void (*keep)(void *user); /* runs on the thread, with the lock: stores the answer for the screen */
	void *user;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below, and the stored answers */
	pthread_cond_t changed;
	bool is_asked, stops;
	uint64_t tried_ns; /* end of the last attempt, with or without an answer; 0: none */
	bool is_slow;      /* used by the screen's thread only: the last wait timed out */
};

/* Initialises all fields except ask, keep and user, and starts the thread. Returns 0 or -errno. */
int asker_start(struct asker *a);
/* Requests an answer, and waits up to `ms` for one newer than now_ns. Does not wait if the last wait timed
 * out. Returns with the lock held. */
void asker_wait(struct asker *a, uint64_t now_ns, unsigned int ms);
/* Ends the thread. Returns false if the thread still waits for an answer. Then the thread and its memory must
 * be left alone until the process ends. */
bool asker_stop(struct asker *a);
