/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>

struct cache;
struct control_viewer;

/* Nodes that STATUS lists of each group, and of all. */
#define STATUS_MAX_PEERS 128

/* null: there are no other nodes. Groups are those of jobs that the viewer may see. */
json_t *status_cluster(const struct cache *c, const struct control_viewer *viewer);
