/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits per user, so that no user can take all resources from the others. A user gets at most a share
 * (--user-share) of three resources: connections, the cache that open sessions need, and the chunks that they
 * need in memory at one time (each is a descriptor). 1/32 of each is reserved for administrators (admin.h).
 * No share limits them, so they can always inspect and use the daemon.
 *
 * This module keeps no counters: server.c sums a user's resources whenever the user requests more.
 *
 * If --cache-quota has rows, a row replaces the share of the cache. Users without a row share the rest.
 *
 * Users are uids. A person who may map subordinate ids (user_namespaces(7)) counts as several users, and can
 * take everything that is not reserved for administrators.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cache_quota.h"
#include "lib/error.h"

#define QUOTA_DEFAULT_PERCENT 75
#define QUOTA_RESERVE_PARTS   32

enum quota_kind {
	QUOTA_CONNECTIONS,
	QUOTA_BYTES,  /* bytes of the cache: snapshots, batches, chunks that sessions need */
	QUOTA_CHUNKS, /* chunks that sessions need at one time */
	QUOTA_N_KINDS,
};

struct quota {
	uint32_t share_percent; /* 1 to 100 */
};

struct usage {
	uint64_t of[QUOTA_N_KINDS];
};

/* Returns how much the user may have of a kind when all users together may have `limit`. */
uint64_t quota_share(const struct quota *q, uint32_t uid, uint64_t limit);

/* Returns 0 if the usage of this user and of all users is within limits; both include the new request.
 * -EDQUOT: beyond the user's share; -EUSERS: the rest is reserved for administrators. err has the remedy. */
int quota_check(const struct quota *q, uint32_t uid, enum quota_kind kind, const struct usage *mine,
		const struct usage *all, uint64_t limit, struct error *err);

/* As quota_check(), for the cache with --cache-quota. bytes: everything that this payer pays for. -EDQUOT. */
int quota_check_payer(const struct cache_quotas *q, uint32_t payer, uint32_t uid, uint64_t bytes,
		      uint64_t limit, struct error *err);
