/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files and folders of a tar archive, one after the other, by libarchive: ustar, pax and GNU's, as they
 * are or compressed by gzip or zstd. Memory is that of one file.
 *
 * All that an archive may have in it besides files and folders is an error: links, devices, absolute paths,
 * and what would lie outside; so is an archive that ends early. Belongs to one thread.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct tar;

struct tar_file {
	const char *path; /* relative, without a ./ in front; a chunk may have a file's name */
	size_t path_length;
	bool is_folder; /* then its path ends in a slash, and the rest is not set */
	const unsigned char *data;
	size_t bytes;
	uint32_t mode;
	uint64_t mtime_ns;
};

/* name "-": standard input. -EBADMSG: it is no archive; -EINVAL: a terminal; -errno of the file. */
int tar_open(const char *name, struct tar **ret, struct error *err);
void tar_free(struct tar *t);

/* As it is shown in texts. */
const char *tar_name(const struct tar *t);

/* The next file or folder, which is valid until the next call: 1; or 0: the archive has come to its end.
 * -EBADMSG: it is damaged, truncated or has something else in it; -EFBIG: a file longer than a sample;
 * -errno. */
int tar_next(struct tar *t, struct tar_file *ret, struct error *err);

/* How much of the archive was read, and how long it is; 0: not known. */
uint64_t tar_position(const struct tar *t);
uint64_t tar_bytes(const struct tar *t);
