/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who has used how much since the daemon started: a row for each user, account of Slurm and namespace of
 * Kubernetes. Rows stay when jobs end, and none is ever given to somebody else, so that sums only grow. Pure.
 *
 * Account and namespace are the client's own word, so they are bounded: when a user has USAGE_MAX_OF_USER
 * rows, or there are USAGE_MAX_ROWS, further ones are counted in a row that is called "other".
 */

#include <stdbool.h>
#include <stdint.h>

#define USAGE_MAX_ROWS    256
#define USAGE_MAX_OF_USER 16
#define USAGE_NAME_BYTES  64
#define USAGE_OTHER       "other"

struct usage_amounts {
	uint64_t jobs, samples, bytes;        /* begun; made ready for clients */
	uint64_t read_bytes;                  /* from storage */
	uint64_t node_bytes;                  /* from other nodes */
	uint64_t cache_bytes;                 /* that those have which run now */
	uint64_t cache_kib_s;                 /* that they had, in KiB times seconds */
	uint64_t cpu_ns;                      /* of the daemon's workers and decoders */
	uint64_t wait_fetch_ns, wait_prep_ns; /* that clients slept for a batch, as they report it */
};

struct usage_row {
	uint32_t uid;
	bool is_other_user; /* of users without a row: uid means nothing */
	char account[USAGE_NAME_BYTES], pod_namespace[USAGE_NAME_BYTES];
	struct usage_amounts amounts;
};

struct usage_totals {
	struct usage_row rows[USAGE_MAX_ROWS + 1]; /* the last one: of users without a row */
	uint32_t n;
};

/* Makes the row of a job that begins, as far as there is room for one. */
void usage_begin(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace);
/* Adds to the row that such a job has. */
void usage_add(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace,
	       const struct usage_amounts *amounts);
/* The i-th row, from 0; NULL: there are no more. */
const struct usage_row *usage_row_at(const struct usage_totals *t, uint32_t i);
