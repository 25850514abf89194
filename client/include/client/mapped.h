/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For the project's own programs: the snapshot that an open dataset has mapped. */

#include "client/diesel.h"
#include "dataset/snapshot.h"

/* The daemon's copy, of which large parts may not be verified (dataset/snapshot.h). Borrowed until
 * diesel_dataset_close(). */
const struct snapshot *mapped_snapshot(const struct diesel_dataset *dataset);
