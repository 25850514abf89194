/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* libarchive's functions: libarchive.read_new() is archive_read_new(). The library is loaded when an archive
 * is opened, because its start, with the libraries that it brings, takes longer than many verbs. */

#include <archive.h>
#include <archive_entry.h>

#include "lib/error.h"

#define LIBARCHIVE_FUNCTIONS(F)                                                                              \
	F(entry_filetype)                                                                                    \
	F(entry_hardlink)                                                                                    \
	F(entry_is_encrypted)                                                                                \
	F(entry_mtime)                                                                                       \
	F(entry_mtime_is_set)                                                                                \
	F(entry_mtime_nsec)                                                                                  \
	F(entry_pathname)                                                                                    \
	F(entry_perm)                                                                                        \
	F(entry_size)                                                                                        \
	F(entry_sparse_count)                                                                                \
	F(error_string)                                                                                      \
	F(filter_bytes)                                                                                      \
	F(filter_code)                                                                                       \
	F(read_data)                                                                                         \
	F(read_free)                                                                                         \
	F(read_header_position)                                                                              \
	F(read_new)                                                                                          \
	F(read_next_header)                                                                                  \
	F(read_open)                                                                                         \
	F(read_open2)                                                                                        \
	F(read_support_filter_gzip)                                                                          \
	F(read_support_format_tar)                                                                           \
	F(set_error)

struct libarchive {
	__typeof__(archive_errno) *error_number; /* errno is a macro */
#define MEMBER(name) __typeof__(archive_##name) *name;
	LIBARCHIVE_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern struct libarchive libarchive;

/* Fills in the functions, if that is still to be done. -ELIBACC: libarchive is not installed. */
int libarchive_load(struct error *err);
