/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Use of resources since the daemon started: a row for each combination of user, Slurm account and Kubernetes
 * namespace. Rows stay when jobs end, and are never reused for others, so that sums only grow. Pure.
 *
 * The client itself reports account and namespace, so the number of rows is bounded: when a user has
 * USAGE_MAX_OF_USER rows, or there are USAGE_MAX_ROWS, further ones are counted in a row that is called
 * "other".
 */

#include <stdbool.h>
#include <stdint.h>

#define USAGE_MAX_ROWS    256
#define USAGE_MAX_OF_USER 16
#define USAGE_NAME_BYTES  64
#define USAGE_OTHER       "other"

struct usage_amounts {
	uint64_t jobs, samples, bytes;        /* jobs begun; samples and bytes made ready for clients */
	uint64_t read_bytes;                  /* bytes read from storage */
	uint64_t node_bytes;                  /* bytes from other nodes */
	uint64_t cache_bytes;                 /* cache that running jobs have now */
	uint64_t cache_kib_s;                 /* use of the cache so far, in KiB-seconds */
	uint64_t cpu_ns;                      /* CPU time of the daemon's workers and decoders */
	uint64_t wait_fetch_ns, wait_prep_ns; /* time that clients slept for a batch, as they report it */
};

struct usage_row {
	uint32_t uid;
	bool is_other_user; /* this row sums users without a row of their own: uid has no meaning */
	char account[USAGE_NAME_BYTES], pod_namespace[USAGE_NAME_BYTES];
	struct usage_amounts amounts;
};

struct usage_totals {
	struct usage_row rows[USAGE_MAX_ROWS + 1]; /* one is for users without a row of their own */
	uint32_t n;
};

/* Adds to the row of a job. A job that begins (amounts->jobs) gets a row, if there is space for one. */
void usage_add(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace,
	       const struct usage_amounts *amounts);
