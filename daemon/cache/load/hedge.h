/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * When a chunk that was asked of another node is read from storage after all, before its time is over: a
 * batch waits for it, and that node takes longer than it ever does, its own read from storage included. Such
 * reads are paid for by answers that came, so that what is too soon costs storage little. Pure.
 */

#include <stdbool.h>
#include <stdint.h>

#define HEDGE_MIN_NS  UINT64_C(200000000) /* what a busy machine may take for anything */
#define HEDGE_ANSWERS 8                   /* that a node must have given, so that its usual time is known */
#define HEDGE_PRICE   20u                 /* answers that pay for one such read... */
#define HEDGE_SAVED   8u                  /* ... of which so many may be saved up */
#define HEDGE_FIRST   4u                  /* ... and so many come first */

/* How long the answer may take. answer_s: what nearly all answers of that node stay below; storage_s: what a
 * chunk usually takes from storage; NAN: not known. UINT64_MAX: that cannot be said. */
uint64_t hedge_after_ns(double answer_s, double storage_s);

struct hedge_account {
	uint64_t spent, answers; /* answers: without those for which nothing more may be saved up */
};

void hedge_answered(struct hedge_account *account);
bool hedge_may(const struct hedge_account *account);
void hedge_spend(struct hedge_account *account);
