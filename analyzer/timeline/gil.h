/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPython's interpreter lock (GIL), found by the behaviour of its users. A thread that needs it sleeps on a
 * condition variable for at most the switch interval of 5 ms, and then asks the holder to release it; the
 * releasing thread wakes one sleeper. So the lock is a condition variable (two adjacent futex words) with two
 * properties. Several threads of one process wait on it, with a timeout of at most 5 ms on the monotonic
 * clock. And several of these threads also wake it, whereas the waiters and wakers of a queue differ.
 *
 * An uncontended lock makes no system call and is not found. The lock of a program that calls
 * sys.setswitchinterval() is not found either.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timeline.h"

struct gil_lock {
	uint64_t process; /* same as in struct timeline_thread */
	uint64_t address; /* address of the first of the two words */
};

struct gil {
	struct gil_lock *locks; /* sorted by process */
	size_t n;
};

/* -ENOMEM. */
int gil_find(const struct timeline *timeline, struct gil *ret_gil);
void gil_free(struct gil *gil);

/* Returns the part of a wait for the lock, in ns, in which another thread of the process ran. In the rest,
 * the holder had no core. */
uint64_t gil_held_ns(const struct timeline *timeline, const struct timeline_thread *waiter, uint64_t begin_ns,
		     uint64_t end_ns);

/* Returns true if the thread waits for its interpreter's lock in this interval off the CPU. */
bool gil_waits(const struct gil *gil, const struct timeline_thread *thread, const struct timeline_off *off);
