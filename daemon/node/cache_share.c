/* SPDX-License-Identifier: Apache-2.0 */
#include "cache_quota.h"

#include "lib/minmax.h"

static bool wants_more(const struct quota_want *w, uint32_t payer, uint32_t stage)
{
	return w->payer == payer && w->stage == stage && w->given < w->most;
}

/* Distributes bytes equally among the payer's demands at this stage that want more. Returns the rest. */
static uint64_t spread(struct quota_want *wants, size_t n, uint32_t payer, uint32_t stage, uint64_t bytes)
{
	for (;;) {
		uint64_t n_left = 0, part;

		for (size_t i = 0; i < n; i++)
			n_left += wants_more(&wants[i], payer, stage);
		if (n_left == 0 || bytes < n_left)
			return bytes;
		part = bytes / n_left;
		for (size_t i = 0; i < n; i++) {
			struct quota_want *w = &wants[i];
			uint64_t more = wants_more(w, payer, stage) ? min_u64(part, w->most - w->given) : 0;

			w->given += more;
			bytes -= more;
		}
	}
}

/* Gives each payer the bytes that it wants, up to its quota. Returns the rest. */
static uint64_t give_quotas(const uint64_t quotas[CACHE_QUOTA_PAYERS], struct quota_want *payers,
			    uint64_t bytes)
{
	uint64_t wanted[CACHE_QUOTA_PAYERS], all = 0, left = bytes;

	for (size_t i = 0; i < CACHE_QUOTA_PAYERS; i++) {
		uint64_t most = min_u64(payers[i].most, quotas[i]);

		wanted[i] = most > payers[i].given ? most - payers[i].given : 0;
		all += wanted[i];
	}
	for (size_t i = 0; i < CACHE_QUOTA_PAYERS; i++) {
		uint64_t more =
		    all <= bytes ? wanted[i] : (uint64_t)((double)wanted[i] / (double)all * (double)bytes);

		more = min_u64(more, left);
		payers[i].given += more;
		left -= more;
	}
	return left;
}

void cache_quotas_share(const uint64_t quotas[CACHE_QUOTA_PAYERS], struct quota_want *wants, size_t n,
			uint64_t limit)
{
	struct quota_want payers[CACHE_QUOTA_PAYERS] = {0};
	uint64_t needed = 0, left;

	for (size_t i = 0; i < n; i++) {
		struct quota_want *w = &wants[i], *payer = &payers[w->payer];

		w->given = w->need;
		payer->need += w->need;
		payer->most += w->most;
		needed += w->need;
	}
	for (size_t i = 0; i < CACHE_QUOTA_PAYERS; i++)
		payers[i].given = payers[i].need;
	left = give_quotas(quotas, payers, limit > needed ? limit - needed : 0);
	(void)spread(payers, CACHE_QUOTA_PAYERS, 0, 0, left);
	for (uint32_t i = 0; i < CACHE_QUOTA_PAYERS; i++) {
		left = payers[i].given - payers[i].need;
		for (uint32_t stage = 0; stage < QUOTA_STAGES; stage++)
			left = spread(wants, n, i, stage, left);
	}
}
