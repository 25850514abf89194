/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For the project's own programs: the snapshot that an open dataset has mapped. */

#include "client/diesel.h"
#include "dataset/snapshot.h"

/* Returns the daemon's copy of the snapshot, large parts of which may be unverified (dataset/snapshot.h).
 * Borrowed until diesel_dataset_close(). */
const struct snapshot *mapped_snapshot(const struct diesel_dataset *dataset);
