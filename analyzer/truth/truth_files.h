/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files that a job reads, and whether they are in the page cache. Needs no privilege: posix_fadvise drops
 * clean pages that nobody has mapped or locked, mincore counts what is left (of files that we own or may
 * write; the kernel does not tell about others').
 */

#include <stddef.h>
#include <stdint.h>

struct error;

struct truth_files {
	char **paths; /* sorted, each once */
	size_t n;
};

/* Lists the regular files below folder. Links are not followed. */
int truth_files_below(const char *folder, struct truth_files *ret_files, struct error *err);

/* One path a line; what is not, or no longer, a regular file is left out. */
int truth_files_parse(const char *text, struct truth_files *ret_files);

void truth_files_free(struct truth_files *files);

struct truth_residence {
	uint64_t bytes;        /* of files that could be looked at */
	uint64_t cached_bytes; /* part of bytes, in the page cache */
	uint64_t n_unreadable; /* files that could not be opened */
	uint64_t n_unknown;    /* files whose pages the kernel tells nothing about */
};

/* Writes dirty pages back and drops the files from the page cache, as far as the kernel lets us. */
void truth_files_evict(const struct truth_files *files);

/* Reads all of them. */
void truth_files_warm(const struct truth_files *files);

void truth_files_residence(const struct truth_files *files, struct truth_residence *ret_residence);
