/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads of a library, in programs that are not aware of them. */

#include <pthread.h>

/* Starts a thread that gets no signals, which are for the program's own threads. -errno. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *context);
