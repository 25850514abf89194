/* SPDX-License-Identifier: Apache-2.0 */
#include "reading.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "lib/array.h"
#include "member.h"

#define NAMES_BYTES      (2 * READING_MAX_NAMES * REGISTRY_NAME_BYTES)
#define TEXT_OF(number)  TEXT_OF_(number)
#define TEXT_OF_(number) #number

void reading_free(struct node_reading *g)
{
	free(g->names);
	free(g->entries);
	*g = (struct node_reading){0};
}

void reading_ask_names(struct redis_link *link, const char *prefix, const struct registry_group_id *group)
{
	struct key key = key_nodes(prefix, group);

	redis_link_read(link, 4, (const char *[]){"ZREVRANGE", key.text, "0", TEXT_OF(READING_MAX_NAMES)},
			NULL);
}

int reading_add_name(struct node_reading *g, const char *text, size_t bytes)
{
	if (!member_is_name(text, bytes))
		return -EBADMSG;
	if (array_reserve(g->names, g->n_names, g->n_space) < 0)
		return -ENOMEM;
	memset(&g->names[g->n_names], 0, sizeof(*g->names));
	memcpy(g->names[g->n_names++].text, text, bytes);
	return 0;
}

static int compare_names(const void *left, const void *right)
{
	return strcmp(((const struct reading_name *)left)->text, ((const struct reading_name *)right)->text);
}

static void sort_names(struct node_reading *g)
{
	size_t n = 0;

	if (g->n_names)
		qsort(g->names, g->n_names, sizeof(*g->names), compare_names);
	for (size_t i = 0; i < g->n_names; i++)
		if (n == 0 || strcmp(g->names[n - 1].text, g->names[i].text) != 0)
			g->names[n++] = g->names[i];
	g->n_names = n;
}

int reading_take_names(struct node_reading *g, const redisReply *reply)
{
	size_t bytes = 0;
	int r = 0;

	if (!reply)
		return -EAGAIN;
	if (reply->type != REDIS_REPLY_ARRAY)
		return -EBADMSG;
	for (size_t i = 0; i < reply->elements && r == 0; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING) {
			bytes += reply->element[i]->len;
			r = reading_add_name(g, reply->element[i]->str, reply->element[i]->len);
		}
	return r == 0 && bytes > NAMES_BYTES ? -EBADMSG : r;
}

/* Takes a node's value. It must be of the group, and of the node in the key's name. */
static void take_value(struct node_reading *g, struct reading_name *name, const redisReply *reply)
{
	struct registry_entry entry;

	name->is_litter = reply->type != REDIS_REPLY_STRING || !member_is_ours(reply->str, reply->len);
	if (reply->type != REDIS_REPLY_STRING || member_parse(reply->str, reply->len, &entry) < 0 ||
	    strcmp(entry.member.node, name->text) != 0 || strcmp(entry.group.text, g->group.text) != 0)
		return;
	g->entries[g->n_entries++] = entry;
}

static int take_values(struct redis_link *link, struct node_reading *g, size_t first)
{
	for (size_t i = 0; i < g->n_names; i++)
		if (!redis_link_reply(link, first + i))
			return -EAGAIN;
	g->n_entries = 0;
	free(g->entries);
	g->entries = calloc(g->n_names + 1, sizeof(*g->entries));
	if (!g->entries)
		return -ENOMEM;
	for (size_t i = 0; i < g->n_names; i++)
		take_value(g, &g->names[i], redis_link_reply(link, first + i));
	return 0;
}

int reading_values(struct redis_link *link, const char *prefix, struct node_reading *groups, size_t n,
		   struct error *err)
{
	size_t n_asked = 0, n_values = 0, first = 0;
	int r = 0;

	for (; n_asked < n; n_asked++) {
		struct node_reading *g = &groups[n_asked];

		sort_names(g);
		if (n_asked && n_values + g->n_names > READING_MAX_VALUES)
			break;
		n_values += g->n_names;
		for (size_t i = 0; i < g->n_names; i++) {
			struct key key = key_node(prefix, &g->group, g->names[i].text);

			/* Reads enough bytes to recognise a value that is too long. */
			redis_link_read(
			    link, 4, (const char *[]){"GETRANGE", key.text, "0", TEXT_OF(MEMBER_TEXT)}, NULL);
		}
	}
	if (n_values)
		r = redis_link_run(link, err);
	for (size_t i = 0; i < n_asked; i++) {
		groups[i].result = take_values(link, &groups[i], first);
		first += groups[i].n_names;
	}
	return r < 0 ? r : (int)n_asked;
}
