/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The fork server of the helpers that work on what belongs to clients (helpers/spawn.h). */

#include "daemon/helpers/spawn.h"

/* Keeps this process's descriptors up to 2 in the fork server and closes all others. */
int fork_server_fork(struct fork_server *ret, struct error *err);
