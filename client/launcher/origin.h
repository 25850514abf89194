/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who runs this process, as Slurm and Kubernetes tell it: for the daemon's metrics and log. */

#include <stdbool.h>

#include "client/protocol.h"

/* Fills in a WIRE_ORIGIN from the environment; in a pod, also from the file that has its namespace. Returns
 * false if there is nothing to tell. */
bool origin_fill(struct wire_origin *m);
