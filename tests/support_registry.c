/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for dataset/registry.h with a file, for tests that choose the nodes themselves. The file has a
 * line per node, "NAME ADDRESS WEIGHT", which is a member of each group. Its URL is "file:PATH". Changes of
 * the file are noticed soon. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/checksum.h"
#include "dataset/registry.h"
#include "lib/thread.h"

#define POLL_US     20000
#define MAX_GROUPS  8
#define MAX_MEMBERS 64

struct registry {
	struct registry_member self;
	struct registry_handler handler;
	char path[512];
	pthread_t thread;
	pthread_mutex_t lock;
	bool ends;
	struct registry_group_id groups[MAX_GROUPS];
	bool told[MAX_GROUPS];
	size_t n_groups;
	struct registry_member members[MAX_MEMBERS];
	size_t n;
};

void registry_group_id(const struct registry_group_key *key, struct registry_group_id *ret)
{
	struct checksum_128 sum = checksum_xxh3_128(key, sizeof(*key));

	snprintf(ret->text, sizeof(ret->text), "%016llx%016llx", (unsigned long long)sum.high,
		 (unsigned long long)sum.low);
}

static size_t read_members(struct registry *r, struct registry_member *members)
{
	FILE *file = fopen(r->path, "re");
	struct registry_member m = {.incarnation = 1};
	unsigned long long weight;
	size_t n = 0;

	while (file && n < MAX_MEMBERS && fscanf(file, "%63s %63s %llu", m.node, m.address, &weight) == 3) {
		m.weight_bytes = weight;
		m.incarnation = strcmp(m.node, r->self.node) == 0 ? r->self.incarnation : 1;
		members[n++] = m;
	}
	if (file)
		fclose(file);
	return n;
}

static void look(struct registry *r)
{
	struct registry_member members[MAX_MEMBERS];
	size_t n;

	memset(members, 0, sizeof(members));
	n = read_members(r, members);
	pthread_mutex_lock(&r->lock);
	if (n != r->n || memcmp(members, r->members, n * sizeof(members[0])) != 0) {
		memcpy(r->members, members, sizeof(members));
		r->n = n;
		memset(r->told, 0, sizeof(r->told));
	}
	for (size_t i = 0; i < r->n_groups; i++) {
		if (!r->told[i])
			r->handler.members(r->handler.user, &r->groups[i], r->members, r->n);
		r->told[i] = true;
	}
	pthread_mutex_unlock(&r->lock);
}

static void *watch(void *context)
{
	struct registry *r = context;

	r->handler.server(r->handler.user, true, NULL);
	while (!r->ends) {
		look(r);
		usleep(POLL_US);
	}
	return NULL;
}

int registry_check(const char *url, struct error *err)
{
	return strncmp(url, "file:", 5) == 0 ? 0 : error_set(err, -EINVAL, "%s: not a file", url);
}

int registry_start(const char *url, const struct registry_member *self,
		   const struct registry_handler *handler, struct registry **ret, struct error *err)
{
	struct registry *r = calloc(1, sizeof(*r));

	if (!r || registry_check(url, err) < 0)
		return -EINVAL;
	r->self = *self;
	r->handler = *handler;
	snprintf(r->path, sizeof(r->path), "%s", url + 5);
	pthread_mutex_init(&r->lock, NULL);
	*ret = r;
	return thread_start(&r->thread, watch, r);
}

void registry_stop(struct registry *r)
{
	r->ends = true;
	pthread_join(r->thread, NULL);
	free(r);
}

int registry_join(struct registry *r, const struct registry_group_key *key, const char *path,
		  uint64_t weight_bytes, const struct owner_lanes *lanes)
{
	struct registry_group_id id;
	size_t i = 0;

	registry_group_id(key, &id);
	pthread_mutex_lock(&r->lock);
	while (i < r->n_groups && strcmp(r->groups[i].text, id.text) != 0)
		i++;
	if (i == r->n_groups && i < MAX_GROUPS) {
		r->groups[r->n_groups++] = id;
		r->told[i] = false;
	}
	pthread_mutex_unlock(&r->lock);
	return i < MAX_GROUPS ? 0 : -ENOSPC;
}

void registry_leave(struct registry *r, const struct registry_group_key *key)
{
	struct registry_group_id id;

	registry_group_id(key, &id);
	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; i < r->n_groups; i++) {
		if (strcmp(r->groups[i].text, id.text) != 0)
			continue;
		r->groups[i] = r->groups[--r->n_groups];
		r->told[i] = r->told[r->n_groups];
		break;
	}
	pthread_mutex_unlock(&r->lock);
}

int registry_publish(struct registry *r, const char *json)
{
	return 0; /* nobody reads it */
}
