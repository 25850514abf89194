/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What one user may take, so that nobody can take everything from the others: at most a share (--user-share)
 * of the connections, of the cache that open sessions need, and of the chunks that they need in memory at one
 * time (each is a descriptor). A 32nd of each is kept for administrators (admin.h), who have no share:
 * they can always look, and use the daemon.
 *
 * Nothing is counted here: what a user has is added up, from all that there is, when more is asked for
 * (server.c).
 *
 * Where --cache-quota has rows, a row takes the place of the share of the cache, and who has none shares what
 * the rows leave with all others that have none.
 *
 * Users are uids. Somebody who may map subordinate ids (user_namespaces(7)) is several users, and can take
 * all that is not kept for administrators.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cache_quota.h"
#include "lib/error.h"

#define QUOTA_DEFAULT_PERCENT 75
#define QUOTA_RESERVE_PARTS   32

enum quota_kind {
	QUOTA_CONNECTIONS,
	QUOTA_BYTES,  /* of the cache: snapshots, batches, chunks that sessions need */
	QUOTA_CHUNKS, /* that sessions need at one time */
	QUOTA_N_KINDS,
};

struct quota {
	uint32_t share_percent; /* 1 to 100 */
};

struct usage {
	uint64_t of[QUOTA_N_KINDS];
};

/* What the user may have of a kind when all users together may have `limit`. */
uint64_t quota_share(const struct quota *q, uint32_t uid, uint64_t limit);

/* Returns 0 if the user's usage and that of all users are within what is allowed; both include what is asked
 * for. -EDQUOT: beyond the user's share; -EUSERS: what is left is kept for administrators. err says what to
 * do. */
int quota_check(const struct quota *q, uint32_t uid, enum quota_kind kind, const struct usage *mine,
		const struct usage *all, uint64_t limit, struct error *err);

/* The same for the cache by --cache-quota: the bytes are those of all that this payer pays for. -EDQUOT. */
int quota_check_payer(const struct cache_quotas *q, uint32_t payer, uint32_t uid, uint64_t bytes,
		      uint64_t limit, struct error *err);
