/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset as a read-only file system (FUSE), served from dieseld's cache. A snapshot is immutable: the
 * kernel may cache names, attributes and bytes without limit, and need not ask for them twice.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct mount_options {
	const char *dataset, *where;
	const char *socket; /* NULL: as in diesel_dataset_open() */
	uint64_t version;   /* version that the dataset must have; 0: any */
	bool over;          /* the folder `where` need not be empty */
	bool private;       /* visible only to the command: in its own mount namespace */
	bool allow_other;
	bool foreground;
	void (*say)(const char *line); /* reports a line; called from any thread */
	char **command; /* command to run; unmounts when it has ended; NULL: serves until unmounted */
};

/* Serves until unmounted or a signal ends it. *ret_status: the command's exit status as in a shell (128 + the
 * signal). On failure, err says what to do. */
int mount_run(const struct mount_options *options, int *ret_status, struct error *err);
