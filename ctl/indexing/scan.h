/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the samples of a tar shard by reading only its headers. A sample is all members in a row that have
 * one key, as WebDataset groups them. The key is a member's path up to the first dot of its base name; the
 * rest names the field. Thread-safe for different scans.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define SCAN_FIELDS_MAX 64

struct scanned_sample {
	uint64_t offset,
	    bytes;         /* range in the shard: from its first member's header to its last member's end */
	uint64_t mtime_ns; /* of its first member */
	size_t key_offset; /* in keys */
	uint32_t key_length;
};

/* How many samples have a field. */
struct scanned_field {
	char name[64];
	uint64_t n_samples;
};

/* The result of a scan. */
struct scanned {
	struct scanned_sample *samples;
	size_t n, capacity;
	char *keys;
	size_t keys_bytes, keys_capacity;
	struct scanned_field fields[SCAN_FIELDS_MAX];
	size_t n_fields;
	uint64_t n_left;       /* files that belong to no sample: their names have no field */
	char left[100];        /* one of them */
	uint64_t source_bytes; /* length of the shard */
	uint64_t stamp;        /* of the shard (dataset/external.h), unchanged during the scan */
};

/* name: a path, or a URL that external_register() has a scheme for. -EBADMSG: no uncompressed tar archive,
 * damaged, or with contents that cannot be read in place; -ESTALE: it changed meanwhile;
 * -ELIBACC: no libarchive; -errno. */
int scan_tar(const char *name, struct scanned *ret, struct error *err);
void scanned_free(struct scanned *s);
/* Adds a sample; its key_offset and key_length follow from the key. -ENOMEM. */
int scanned_add(struct scanned *s, const struct scanned_sample *sample, const char *key, size_t length);

/* Counts the fields of one scan in the sum of several. */
void scanned_add_fields(struct scanned *sum, const struct scanned *s);
