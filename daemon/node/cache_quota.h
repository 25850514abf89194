/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Parts of the cache for users and groups (--cache-quota): a row for each, and a group's members share
 * theirs. Each row is a payer, and everybody without one pays together, from what the rows leave. So there
 * are no more payers than the operator wrote, whoever connects.
 *
 * Who pays is the kernel's word alone: the user of the peer (SO_PEERCRED) and its groups (SO_PEERGROUPS).
 * A client's own word, such as an account of Slurm's, gives nobody a part.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/error.h"

#define CACHE_QUOTA_ROWS   31
#define CACHE_QUOTA_PAYERS (CACHE_QUOTA_ROWS + 1)
#define CACHE_QUOTA_REST   0 /* the payer for all who have no row; row i is payer i + 1 */

struct cache_quota {
	char name[48]; /* as the operator wrote it, "@" in front of a group */
	bool is_group;
	bool is_unknown; /* the machine does not know the name yet: nobody has the row, and others have its
			    part */
	uint32_t id;     /* of the user or the group */
	uint32_t percent;
};

struct cache_quotas {
	struct cache_quota rows[CACHE_QUOTA_ROWS];
	uint32_t n; /* 0: there are none, and all pay together */
};

/* Reads "alice=20%, @physics=40%", or "off". A name that is not known is none of its business: what knows it
 * may start after dieseld. -EINVAL: err begins with the setting's name, and says what to write. */
int cache_quotas_parse(const char *name, const char *value, struct cache_quotas *ret, struct error *err);

/* Looks the names up that are not known. Returns how many still are not. May wait for a server of names. */
uint32_t cache_quotas_find(struct cache_quotas *q);
/* Takes the numbers of names that are not known from rows of before. */
void cache_quotas_remember(struct cache_quotas *q, const struct cache_quotas *old);
/* 0, or -EINVAL with a line for a name that is not known. */
int cache_quotas_check(const char *name, const struct cache_quotas *q, struct error *err);

/* Who pays for this user, who is in these groups: the user's row, else the first row of a group. */
uint32_t cache_quotas_payer(const struct cache_quotas *q, uint32_t uid, const uint32_t *gids, size_t n_gids);
/* The same for the other end of a Unix socket. */
uint32_t cache_quotas_payer_of(const struct cache_quotas *q, int socket, uint32_t uid);
const char *cache_quotas_name(const struct cache_quotas *q, uint32_t payer);
/* The part of so many bytes that the payer may insist on. */
uint64_t cache_quotas_bytes(const struct cache_quotas *q, uint32_t payer, uint64_t bytes);

/* Something that a payer's jobs want memory for. */
struct quota_want {
	uint32_t payer;
	uint32_t stage;      /* a payer's memory goes to the lower ones first */
	uint64_t need, most; /* it has the one in any case, and no more than the other */
	uint64_t given;
};

#define QUOTA_STAGES 3

/*
 * Gives out `limit` bytes, cache_share.c. Each payer has what it wants up to its quota, and what is left
 * after that goes in equal parts to those that want more: it is lent, and comes back when its owner wants it.
 * Where needs are more than a quota, they come out of what others would be lent, and then of their quotas.
 */
void cache_quotas_share(const uint64_t quotas[CACHE_QUOTA_PAYERS], struct quota_want *wants, size_t n,
			uint64_t limit);
