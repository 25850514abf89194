/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPython's interpreter lock, found by how its users behave. A thread that wants it sleeps on a condition
 * variable for at most the switch interval of 5 ms, and then asks the holder to give way; who gives it
 * away wakes one that sleeps there. So the lock is a condition variable (two futex words side by side)
 * on which several threads of one process wait with a timeout on the monotonic clock, which never lasts
 * longer than 5 ms, and which several of them wake: a queue has its waiters on one side and its wakers on
 * the other, a lock has both on both.
 *
 * An uncontended lock makes no system call and is not found. Nor is that of a program that calls
 * sys.setswitchinterval().
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "timeline.h"

struct gil_lock {
	uint64_t process; /* of struct timeline_thread */
	uint64_t address; /* of the first of the two words */
};

struct gil {
	struct gil_lock *locks; /* by process */
	size_t n;
};

/* -ENOMEM. */
int gil_find(const struct timeline *timeline, struct gil *ret_gil);
void gil_free(struct gil *gil);

/* ns of such a wait in which another thread of the process ran; in the rest the holder itself had no core. */
uint64_t gil_held_ns(const struct timeline *timeline, const struct timeline_thread *waiter, uint64_t begin_ns,
		     uint64_t end_ns);

/* Does the thread wait for the lock of its interpreter in this stretch off the CPU? */
bool gil_waits(const struct gil *gil, const struct timeline_thread *thread, const struct timeline_off *off);
