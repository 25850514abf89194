/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The keys of the registry. PREFIX is that of the URL, or "diesel".
 *
 *	PREFIX:cluster:{GROUP}:nodes       sorted set of a group's node names, by their last renewal
 *	PREFIX:cluster:{GROUP}:node:NAME   a node's entry (member.h), with an expiry
 *	PREFIX:cluster:groups              sorted set of the groups, by the last renewal of any node
 *	PREFIX:cluster:reports             sorted set of the nodes that report
 *	PREFIX:cluster:report:NAME         a node's report, with an expiry
 *
 * The sets only show where to look, and are ordered by clocks that need not agree. The keys with an expiry
 * show which nodes are there.
 */

#include "dataset/registry.h"
#include "dataset/redis/redis_url.h"

#define KEY_BYTES (REDIS_URL_PART + REGISTRY_NAME_BYTES + 64)

struct key {
	char text[KEY_BYTES];
};

struct key key_nodes(const char *prefix, const struct registry_group_id *group);
struct key key_node(const char *prefix, const struct registry_group_id *group, const char *node);
struct key key_groups(const char *prefix);
struct key key_reports(const char *prefix);
struct key key_report(const char *prefix, const char *node);
