/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads the files and folders of a tar archive one by one, with libarchive: ustar, pax and GNU formats, plain
 * or compressed by gzip or zstd. Needs memory for one file.
 *
 * Anything but files and folders is an error: links, devices, absolute paths, and paths that lead outside. A
 * truncated archive is one, too. Not thread-safe.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

struct tar;

struct tar_file {
	const char *path; /* relative, without a leading ./, and valid as a sample's path */
	size_t path_length;
	bool is_folder; /* a folder's path ends in a slash, and the fields below are not set */
	const unsigned char *data;
	size_t bytes;
	uint32_t mode;
	uint64_t mtime_ns;
};

/* Opens an archive. name "-": standard input. -EBADMSG: not an archive; -EINVAL: a terminal; -ELIBACC: no
 * libarchive; -errno of the file. */
int tar_open(const char *name, struct tar **ret, struct error *err);
void tar_free(struct tar *t);

/* Returns the name for messages. */
const char *tar_name(const struct tar *t);

/* Reads the next file or folder, valid until the next call. Returns 1, or 0 at the end of the archive.
 * -EBADMSG: damaged, truncated, or contains something else; -EFBIG: a file longer than a sample; -errno. */
int tar_next(struct tar *t, struct tar_file *ret, struct error *err);

/* Return the bytes read so far, and the length of the archive; 0: not known. */
uint64_t tar_position(const struct tar *t);
uint64_t tar_bytes(const struct tar *t);
