/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The fork server of the helpers that work on clients' data (helpers/spawn.h). */

#include "daemon/helpers/spawn.h"

/* Forks the fork server. It keeps descriptors 0 to 2 of this process, and closes all others. Returns 0 or
 * a negative errno. */
int fork_server_fork(struct fork_server *ret, struct error *err);
