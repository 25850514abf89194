/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maps keys to nodes of a Redis Cluster, from CLUSTER SLOTS and redirections. Pure. */

#include <stddef.h>
#include <stdint.h>

#include <hiredis/hiredis.h>

#include "redis_url.h"

#define REDIS_N_SLOTS   16384
#define REDIS_NODES_MAX 1000 /* the maximum that Redis Cluster is designed for */

/* Returns the slot of a key. If the key contains {TEXT}, only TEXT counts. */
uint16_t redis_slot(const char *key, size_t bytes);

struct redis_range {
	uint16_t first, last;
	struct redis_address master; /* host "": the host of the node that was asked */
};

typedef int redis_range_callback(const struct redis_range *range, void *context);

/* Calls back for each range of a reply to CLUSTER SLOTS. -EPROTO, or the callback's result if it is not 0. */
int redis_slots_each(const redisReply *reply, redis_range_callback *callback, void *context);
/* Parses "MOVED 3999 127.0.0.1:6381" and "ASK ...". -EPROTO */
int redis_slots_redirection(const redisReply *error, uint16_t *ret_slot, struct redis_address *ret);
