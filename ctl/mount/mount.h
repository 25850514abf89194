/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A dataset as a read-only file system (FUSE), served from dieseld's cache. A snapshot is immutable: the
 * kernel keeps names, attributes and bytes for as long as it likes, and asks for none of them twice.
 */

#include <stdbool.h>
#include <stdint.h>

#include "lib/error.h"

struct mount_options {
	const char *dataset, *where;
	const char *socket; /* NULL: as diesel_dataset_open() */
	uint64_t version;   /* that the dataset must have; 0: any */
	bool over;          /* where may have something in it */
	bool private;       /* only for the command: in a mount namespace of its own */
	bool allow_other;
	bool foreground;
	void (*say)(const char *line); /* gets lines worth telling, from any thread */
	char **command;                /* run it, and unmount when it has ended; NULL: until unmounted */
};

/* Serves until it is unmounted or told to end. *ret_status: the command's exit status, as shells have it (128
 * + the signal). The line in err says what to do. */
int mount_run(const struct mount_options *options, int *ret_status, struct error *err);
