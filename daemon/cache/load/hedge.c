/* SPDX-License-Identifier: Apache-2.0 */
#include "hedge.h"

#include <math.h>

#define NS_PER_S 1e9
/* What nearly all answers take is measured: twice that is none of them. */
#define ANSWER_TIMES 2
/* The owner may have to read the chunk first, behind others that it was asked for. */
#define STORAGE_TIMES 3

uint64_t hedge_after_ns(double answer_s, double storage_s)
{
	double after_s;

	if (isnan(answer_s) || isnan(storage_s))
		return UINT64_MAX;
	after_s = fmax(ANSWER_TIMES * answer_s, answer_s + STORAGE_TIMES * storage_s);
	if (after_s * NS_PER_S >= (double)(UINT64_MAX / 2))
		return UINT64_MAX;
	return after_s * NS_PER_S > (double)HEDGE_MIN_NS ? (uint64_t)(after_s * NS_PER_S) : HEDGE_MIN_NS;
}

static uint64_t worth(const struct hedge_account *a)
{
	return HEDGE_FIRST + a->answers / HEDGE_PRICE;
}

void hedge_answered(struct hedge_account *a)
{
	if (worth(a) < a->spent + HEDGE_SAVED)
		a->answers++;
}

bool hedge_may(const struct hedge_account *a)
{
	return worth(a) > a->spent;
}

void hedge_spend(struct hedge_account *a)
{
	a->spent++;
}
