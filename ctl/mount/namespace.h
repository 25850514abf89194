/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "lib/error.h"

/* Gives this process a mount namespace of its own, in which others' mounts appear but from which none leaves;
 * without root by way of a user namespace, in which it is who it was. Before any thread is started. -EPERM:
 * the system does not let it. */
int namespace_enter(struct error *err);
