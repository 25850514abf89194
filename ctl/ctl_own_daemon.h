/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the dieseld that serves a verb which reads a dataset. As for a job, that is the node's daemon or, if
 * it is not accessible, the user's own, which is started if need be (docs/reference/loader.md, "The daemon").
 */

#include <stdint.h>

#include "lib/error.h"

#define CTL_SOCKET_MAX 108

/* given: the option --socket, or NULL. *socket becomes `given`, `text`, or NULL (libdiesel's default).
 * -ECONNREFUSED: no daemon is running, and none can be started. -ETIMEDOUT: the named daemon does not
 * answer within timeout_s. */
int ctl_own_daemon(const char *given, uint32_t timeout_s, char text[CTL_SOCKET_MAX], const char **socket,
		   struct error *err);
