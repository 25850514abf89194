/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Combines the shares of one second from figures of different times: the exact wait of this second, and the
 * shares of the last detailed slice, which give the division of the rest. Pure. */

#include <stdbool.h>

#include "tuner/stall_sample.h"

struct analysis;

/*
 * Combines both. wait: share of this second in which the trainer waited for data; NAN: not known, then the
 * result is the slice's shares. slice: NULL before the first slice; then the time without waits counts as the
 * device's, and the division of the wait is not known (NAN). All shares that are known sum to 1.
 */
void shares_combine(const struct stall_shares *slice, double wait, struct stall_shares *ret);
