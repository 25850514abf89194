/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes a section of a snapshot from its beginning to its end. {.fd = -EBADF} is a writer that was not
 * begun. Not thread-safe. */

#include "dataset/chunk/buffer.h"
#include "dataset/checksum/checksum.h"
#include "dataset/lookup/snapshot_format.h"

struct section_writer {
	int fd; /* borrowed */
	uint64_t offset, bytes;
	struct buffer block;
	struct checksum_stream *sum;
};

/* Begins at the first offset >= `offset` where a section may begin. -ENOMEM. */
int section_begin(struct section_writer *w, int fd, uint64_t offset);
/* Adds bytes to the section. -ENOMEM, -errno of the file. */
int section_add(struct section_writer *w, const void *data, size_t bytes);
/* Ends the section. *ret is its extent for the header. -errno of the file. */
int section_end(struct section_writer *w, struct snapshot_extent *ret);
void section_free(struct section_writer *w);
