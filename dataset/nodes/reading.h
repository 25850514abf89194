/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads the members of groups from the server: first the names, of many groups at once, then the values of
 * these nodes. The size of a reply is bounded, whatever data is on the server. Not thread-safe. */

#include "dataset/registry.h"
#include "dataset/redis/redis_link.h"

#define READING_MAX_NAMES  1536 /* names of a group: more than members, since dead nodes stay for a while */
#define READING_MAX_VALUES 4096 /* requested in one batch */

struct reading_name {
	char text[REGISTRY_NAME_BYTES];
	bool is_litter; /* the node's key is missing, or no version of DIESEL wrote its value */
};

struct node_reading {
	struct registry_group_id group;
	struct reading_name *names; /* sorted, each once */
	size_t n_names, n_space;
	struct registry_entry *entries; /* sorted by node; only those with a valid value */
	size_t n_entries;
	int result; /* result of reading this group */
};

/* Adds the command that fetches the group's names; pass its reply to reading_take_names(). */
void reading_ask_names(struct redis_link *link, const char *prefix, const struct registry_group_id *group);
/* Adds the names in the reply to the known ones. NULL: -EAGAIN. -ENOMEM; -EBADMSG: no such set, or one that
 * no nodes made. */
int reading_take_names(struct node_reading *g, const redisReply *reply);
/* Adds a name. -ENOMEM; -EBADMSG: the text cannot be a name. */
int reading_add_name(struct node_reading *g, const char *text, size_t bytes);
/* Fetches the values of all names of these groups, each once; g->result says whether that succeeded. Returns
 * the number of groups read, at least one: as many as fit in one batch. -errno: none, also as results. */
int reading_values(struct redis_link *link, const char *prefix, struct node_reading *groups, size_t n,
		   struct error *err);
void reading_free(struct node_reading *g);

/* Reads the server's settings from the URL and the environment; the prefix is the URL's, or "diesel". */
int registry_settings(const char *url, unsigned wait_s, struct redis_settings *ret,
		      char prefix[REDIS_URL_PART], struct error *err);
