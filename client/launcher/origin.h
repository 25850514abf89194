/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Identifies the job of this process, from Slurm's and Kubernetes' variables: for the daemon's metrics and
 * log. */

#include <stdbool.h>

#include "client/protocol.h"

/* Fills in a WIRE_ORIGIN from the environment and, in a pod, from the file with its namespace. Returns false
 * if nothing is known. */
bool origin_fill(struct wire_origin *m);
