/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Quotas of the cache for users and groups (--cache-quota): one row each, and a group's members share theirs.
 * Each row is a payer. All users without a row are one more payer, which gets the rest. So the number of
 * payers is fixed by the operator, whoever connects.
 *
 * Only the kernel decides who pays: it reports the user of the peer (SO_PEERCRED) and its groups
 * (SO_PEERGROUPS). Claims of a client, such as a Slurm account, grant no quota.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define CACHE_QUOTA_ROWS   31
#define CACHE_QUOTA_PAYERS (CACHE_QUOTA_ROWS + 1)
#define CACHE_QUOTA_REST   0 /* the payer for all users without a row; row i is payer i + 1 */

struct cache_quota {
	char name[48]; /* as the operator wrote it; "@" before a group */
	bool is_group;
	bool is_unknown; /* the machine cannot resolve the name yet: the row has no users, and its quota goes
			    to the others */
	uint32_t id;     /* uid or gid */
	uint32_t percent;
};

struct cache_quotas {
	struct cache_quota rows[CACHE_QUOTA_ROWS];
	uint32_t n; /* 0: no quotas; all users pay together */
};

/* Parses "alice=20%, @physics=40%", or "off". Accepts unknown names: the service that resolves them may start
 * after dieseld. -EINVAL: err begins with the setting's name, and says what to write. */
int cache_quotas_parse(const char *name, const char *value, struct cache_quotas *ret, struct error *err);

/* Resolves unknown names. Returns how many are still unknown. May wait for a name service. */
uint32_t cache_quotas_find(struct cache_quotas *q);
/* Copies the numbers of unknown names from the previous rows. */
void cache_quotas_remember(struct cache_quotas *q, const struct cache_quotas *old);
/* Returns 0, or -EINVAL with a message about a name that is unknown. */
int cache_quotas_check(const char *name, const struct cache_quotas *q, struct error *err);

/* Returns the payer for a user who is in these groups: the user's row, else the first row of one of the
 * groups, else CACHE_QUOTA_REST. */
uint32_t cache_quotas_payer(const struct cache_quotas *q, uint32_t uid, const uint32_t *gids, size_t n_gids);
/* As cache_quotas_payer(), for the other end of a Unix socket, whose groups it looks up. */
uint32_t cache_quotas_payer_of(const struct cache_quotas *q, int socket, uint32_t uid);
const char *cache_quotas_name(const struct cache_quotas *q, uint32_t payer);
/* Returns the payer's quota of `bytes`. */
uint64_t cache_quotas_bytes(const struct cache_quotas *q, uint32_t payer, uint64_t bytes);

/* A demand for memory of a payer's jobs. */
struct quota_want {
	uint32_t payer;
	uint32_t stage;      /* a payer's memory goes first to its demands of lower stages */
	uint64_t need, most; /* bytes that the demand gets in any case, and its maximum */
	uint64_t given;
};

#define QUOTA_STAGES 3

/*
 * Distributes `limit` bytes (cache_share.c). Each payer gets the bytes that it wants, up to its quota. Payers
 * that want more borrow equal parts of the rest, and lose them when the owner needs the memory. If a payer's
 * needs exceed its quota, the excess reduces first what others may borrow, and then their quotas.
 */
void cache_quotas_share(const uint64_t quotas[CACHE_QUOTA_PAYERS], struct quota_want *wants, size_t n,
			uint64_t limit);
