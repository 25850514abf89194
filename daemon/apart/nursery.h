/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The nursery of the helpers that work on what belongs to clients (helpers/spawn.h). */

#include "daemon/helpers/spawn.h"

/* Keeps this process's descriptors up to 2 in the nursery and closes all others. */
int nursery_fork(struct nursery *ret, struct error *err);
