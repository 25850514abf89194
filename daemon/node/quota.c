/* SPDX-License-Identifier: Apache-2.0 */
#include "quota.h"

#include <errno.h>
#include <stdio.h>

#include "admin.h"
#include "lib/units.h"

static const char *format_amount(char *text, size_t size, enum quota_kind kind, uint64_t amount)
{
	static const char *const units[] = {"connection", "", "chunk"};
	char bytes[16];

	if (kind == QUOTA_BYTES)
		snprintf(text, size, "%s of cache", units_format_bytes(bytes, sizeof(bytes), amount));
	else
		snprintf(text, size, "%llu %s%s%s", (unsigned long long)amount, units[kind],
			 units_plural(amount), kind == QUOTA_CHUNKS ? " in memory" : "");
	return text;
}

static uint64_t percent_of(uint64_t limit, uint32_t percent)
{
	return limit / 100 * percent + limit % 100 * percent / 100;
}

uint64_t quota_share(const struct quota *q, uint32_t uid, uint64_t limit)
{
	return admin_is(uid) ? limit : percent_of(limit, q->share_percent);
}

int quota_check(const struct quota *q, uint32_t uid, enum quota_kind kind, const struct usage *mine,
		const struct usage *all, uint64_t limit, struct error *err)
{
	bool admin = admin_is(uid);
	uint64_t share = quota_share(q, uid, limit);
	uint64_t shared = admin ? limit : limit - limit / QUOTA_RESERVE_PARTS;
	char wanted[48], allowed[48];

	if (mine->of[kind] > share)
		return error_set(err, -EDQUOT,
				 "user %u would use %s, but one user may use %s of this dieseld: end jobs "
				 "that are not needed, or raise --user-share",
				 uid, format_amount(wanted, sizeof(wanted), kind, mine->of[kind]),
				 format_amount(allowed, sizeof(allowed), kind, share));
	if (all->of[kind] > shared)
		return error_set(err, -EUSERS,
				 "all users together would use %s of this dieseld, which has %s%s: end jobs "
				 "that are not needed, or try later",
				 format_amount(wanted, sizeof(wanted), kind, all->of[kind]),
				 format_amount(allowed, sizeof(allowed), kind, shared),
				 admin ? "" : " for users who do not administer it");
	return 0;
}

int quota_check_payer(const struct cache_quotas *q, uint32_t payer, uint32_t uid, uint64_t bytes,
		      uint64_t limit, struct error *err)
{
	uint64_t share = cache_quotas_bytes(q, payer, limit - limit / QUOTA_RESERVE_PARTS);
	char wanted[48], allowed[48];

	if (q->n == 0 || admin_is(uid) || bytes <= share)
		return 0;
	format_amount(wanted, sizeof(wanted), QUOTA_BYTES, bytes);
	format_amount(allowed, sizeof(allowed), QUOTA_BYTES, share);
	if (payer == CACHE_QUOTA_REST)
		return error_set(
		    err, -EDQUOT,
		    "all users without a quota, such as %u, would use %s of this dieseld, but cache-quota "
		    "leaves them %s: end jobs that are not needed, or lower the quotas of others",
		    uid, wanted, allowed);
	return error_set(err, -EDQUOT,
			 "user %u would use %s of this dieseld, including everything charged to %s, whose "
			 "quota is %s: end jobs that are not needed, or raise cache-quota",
			 uid, wanted, cache_quotas_name(q, payer), allowed);
}
