/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the chain of the last slow step; see analyzer/chain.h. */

#include "analyzer/chain.h"

struct study;

/* Finds the chain; the caller frees it with free(). *ret_chain NULL: no step waited. -ENOMEM. */
int wait_chain_find(const struct study *study, struct wait_chain **ret_chain);
