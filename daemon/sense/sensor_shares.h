/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shares of one second, from what is known at different times: the exact wait of this second, and the shares
 * of the last slice in detail, which say how the rest divides. Pure.
 */

#include <stdbool.h>

#include "tuner/stall_sample.h"

struct analysis;

/* The shares of an analysed slice; gpu_wait is NAN if not known. Returns false if it has too few steps. */
bool shares_of(const struct analysis *analysis, struct stall_shares *ret);

/*
 * wait: share of this second that the trainer waited for data; NAN: not known, the slice's shares then.
 * slice: NULL before the first slice; what is not waiting then counts as the device's, and how the wait
 * divides is not known (NAN). All shares that are known sum to 1.
 */
void shares_combine(const struct stall_shares *slice, double wait, struct stall_shares *ret);
