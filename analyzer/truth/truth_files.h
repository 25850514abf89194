/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files that a job reads, and whether they are in the page cache. Needs no privilege: posix_fadvise drops
 * clean pages that no process has mapped or locked, and mincore counts the remaining pages. mincore works
 * only for files that we own or may write.
 */

#include <stdlib.h>
#include <stddef.h>
#include <stdint.h>

struct error;

struct truth_files {
	char **paths; /* sorted, without duplicates */
	size_t n;
};

/* Lists the regular files below folder. Links are not followed. */
int truth_files_below(const char *folder, struct truth_files *ret_files, struct error *err);

/* Parses one path per line; leaves out paths that are not, or no longer, regular files. */
int truth_files_parse(const char *text, struct truth_files *ret_files);

static inline void truth_files_free(struct truth_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->paths[i]);
	free(files->paths);
	*files = (struct truth_files){0};
}

struct truth_residence {
	uint64_t bytes;        /* bytes of the files whose pages could be counted */
	uint64_t cached_bytes; /* part of `bytes` that is in the page cache */
	uint64_t n_unreadable; /* files that could not be opened */
	uint64_t n_unknown;    /* files whose pages mincore does not report */
};

/* Writes dirty pages back and drops the files from the page cache, as far as the kernel permits. */
void truth_files_evict(const struct truth_files *files);

/* Reads all files into the page cache. */
void truth_files_warm(const struct truth_files *files);

void truth_files_residence(const struct truth_files *files, struct truth_residence *ret_residence);
