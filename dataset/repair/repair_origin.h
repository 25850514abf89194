/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A place that may have the lost parts of a damaged dataset: another copy of it, or the files that were
 * packed. */

#include "dataset/backend.h"

struct repair_origin {
	const char *name; /* as given */
	struct place *place;
	struct store *store; /* NULL: a tree of files */
	int source_fd;       /* folder of the tree of files */
};
void repair_origin_close(struct repair_origin *o);
