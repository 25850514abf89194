/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads of a library, in programs that know nothing of them. */

#include <pthread.h>

/* Starts one that gets no signals: they are for the program's own threads. -errno. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *context);
