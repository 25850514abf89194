/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shares of one second, out of what is known at different times: the wait of this second, exact, and the
 * shares of the last slice in detail, which say how the rest divides. Pure.
 */

#include <stdbool.h>

#include "tuner/stall_sample.h"

struct analysis;

/* Of an analysis of a slice; gpu_wait NAN where it is not known. false: it has too few steps. */
bool shares_of(const struct analysis *analysis, struct stall_shares *ret);

/*
 * wait: share of this second that the trainer waited for data; NAN: not known, the slice's shares then.
 * slice: NULL before the first slice: what is not waiting is the device's then, and the division of the wait
 * is not known (NAN). All shares that are known sum to 1.
 */
void shares_combine(const struct stall_shares *slice, double wait, struct stall_shares *ret);
