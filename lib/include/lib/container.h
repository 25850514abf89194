/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that hold many samples each, known by their names: an LMDB, tar archives, Parquet. Their contents
 * are not looked at. `dieselctl pack` makes a sample of each file, so it refuses them, and no message may
 * advise to pack them. */

struct container {
	const char *what;    /* "Parquet files" */
	const char *instead; /* advice that makes their samples packable: "extract them into one folder" */
};

/* path: a file's path, or only its name. NULL: not a known container. */
const struct container *container_of_path(const char *path);
