/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One entry of a dataset's log: what a version changed, when, and who made it. A few lines of text, the same
 * in every metadata engine; docs/reference/formats.md has it.
 *
 * Chunks are never changed. Replaying the chunks up to a version's newest one, in id order, gives that
 * version. So reading an old version needs nothing but its entry.
 */

#include "dataset/chunk.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHANGE_MAX     1024 /* bytes of text */
#define CHANGE_NAME    64
#define CHANGE_COMMAND 256

struct change {
	uint64_t version;
	uint64_t time_ns; /* CLOCK_REALTIME of the writer's machine */
	uint64_t oldest;  /* the oldest version that can still be read */
	bool has_newest;
	struct chunk_id newest;                  /* the chunk with the highest id of this version */
	bool is_counted;                         /* the next three counts are known; false after a rebuild */
	uint64_t n_added, n_replaced, n_deleted; /* paths */
	uint64_t n_samples;                      /* samples of the dataset in this version */
	uint64_t n_chunks;                       /* written */
	uint64_t n_bytes;                        /* total bytes of the samples */
	/* Printable, without line breaks. */
	char host[CHANGE_NAME], user[CHANGE_NAME], command[CHANGE_COMMAND];
};

/* Formats an entry. Returns the length, without the terminator. */
size_t change_format(const struct change *c, char text[CHANGE_MAX]);
/* Parses an entry. -EBADMSG: the text is no entry; -EPROTONOSUPPORT: a newer one. */
int change_parse(const char *text, size_t bytes, struct change *ret);
