/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Starts dieselctl, which does work for libdiesel that needs more than libc. Uses $DIESEL_DIESELCTL, else the
 * path given to diesel_dieselctl(), else PATH. */

#include "lib/error.h"

/* Starts dieselctl. Its standard input is one end of a socket pair of this type, and *ret_channel_fd the
 * other. arguments: its verb and its arguments, ended by NULL; dataset: for error texts. -ENOENT: no such
 * program. */
int start_dieselctl(char *const arguments[], int type, const char *dataset, int *ret_channel_fd,
		    struct error *err);

/* Sets the error for a process that ended without an answer. Returns -EPROTO. */
int start_broken(const char *dataset, struct error *err);
