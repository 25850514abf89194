/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A version of a dataset in a bucket, in a few lines of text: which objects are its snapshot and its
 * metadata, and what they hold. docs/reference/formats.md has it.
 */

#include "dataset/chunk.h"
#include "dataset/digest.h"
#include "lib/error.h"

#define MANIFEST_MAX 512
#define MANIFEST_KEY 64

struct manifest_part {
	uint64_t bytes;
	struct digest sha256;
};

struct manifest {
	uint64_t version;   /* 0: nothing was published yet, and the next fields are unset */
	bool is_removed;    /* the dataset is being removed, and the next fields are unset */
	struct chunk_id id; /* id in the names of the two objects */
	struct manifest_part snapshot, metadata;
};

/* Writes the name of a version's manifest. Returns key. */
const char *manifest_key(uint64_t version, char key[MANIFEST_KEY]);
/* Formats a manifest. Returns the length of the text. */
size_t manifest_format(const struct manifest *m, char text[MANIFEST_MAX]);
/* Parses a manifest. -EBADMSG: the text is no manifest; -EPROTONOSUPPORT: a newer format. */
int manifest_parse(const char *text, size_t bytes, struct manifest *ret);
