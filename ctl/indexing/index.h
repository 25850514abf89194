/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Indexes files of other formats: makes a dataset whose samples stay in them (dataset/external.h).
 *
 * All or nothing, like pack_run(). After an interruption, the next run takes the shards that were complete
 * and have not changed. If the dataset exists, shards that have not changed are left out, and the samples of
 * a changed one are replaced.
 */

#include <stdbool.h>

#include "dataset/writer.h"
#include "lib/progress.h"
#include "scan.h"

struct index_options {
	const char *dataset;
	char *const *arguments; /* shards, and folders of them */
	size_t n_arguments;
	const char
	    *rows; /* a file of samples that another program found (rows.h), instead of arguments; or NULL */
	uint64_t chunk_bytes;
	unsigned n_threads;
	const char *command;
	progress_callback *progress;
	bool (*cancelled)(void *context);
	void *context;
};

struct index_result {
	uint64_t n_shards, n_unchanged, n_resumed; /* shards of this run, and those that were there before */
	uint64_t n_samples, bytes;                 /* in the shards of this run */
	uint64_t n_chunks, version;
	struct scanned fields; /* only fields, n_left and left are set */
};

/* -ENODATA: no shards; -EEXIST: two shards or samples have one name; errors of scan_tar() and
 * writer_commit().
 */
int index_run(const struct index_options *options, struct index_result *ret, struct error *err);
