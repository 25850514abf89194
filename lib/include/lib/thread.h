/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starts threads of a library, in programs that do not expect any. */

#include <pthread.h>

/* Starts a thread with all signals blocked, because they are for the program's own threads. -errno. */
int thread_start(pthread_t *ret, void *(*run)(void *), void *context);
