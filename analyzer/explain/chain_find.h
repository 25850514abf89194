/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the chain of the last slow step; see analyzer/chain.h. */

#include "analyzer/chain.h"

struct study;

/* NULL in *ret_chain: no step waited. Caller frees it with free(). -ENOMEM. */
int wait_chain_find(const struct study *study, struct wait_chain **ret_chain);
