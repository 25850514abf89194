/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The program dieselctl, which does for libdiesel what takes more than libc: $DIESEL_DIESELCTL, else what
 * diesel_dieselctl() was told, else in PATH. */

#include "lib/error.h"

/* Starts it. Its standard input is the other end of a pair of sockets of this type, of which *ret_channel_fd
 * is ours. arguments: its verb and what follows, ended by NULL; dataset: for error texts. -ENOENT: there is
 * no such program. */
int start_dieselctl(char *const arguments[], int type, const char *dataset, int *ret_channel_fd,
		    struct error *err);

/* The error for one that has ended without an answer. Returns -EPROTO. */
int start_broken(const char *dataset, struct error *err);
