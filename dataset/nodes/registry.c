/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/thread.h"
#include "member.h"
#include "dataset/redis/redis_env.h"
#include "reading.h"
#include "registry_private.h"

#define PATIENCE_NS (600 * NS_PER_MS) /* limit of one attempt: three attempts fit into a lease */
#define APART_NS    (20 * NS_PER_MS)  /* minimum time between rounds, however often callers join and leave */
#define STOP_NS     (500 * NS_PER_MS)
#define PREFIX      "diesel"

static void free_registry(struct registry *r)
{
	redis_link_close(r->link);
	for (size_t i = 0; i < r->n_groups; i++) {
		free(r->groups[i]->members);
		free(r->groups[i]);
	}
	explicit_bzero(&r->settings, sizeof(r->settings));
	pthread_mutex_destroy(&r->mutex);
	pthread_mutex_destroy(&r->calling);
	pthread_cond_destroy(&r->changed);
	free(r->report);
	free(r->next_report);
	free(r);
}

/* Waits with the mutex held. Returns early if something has changed or the thread must stop. */
static void wait_until(struct registry *r, uint64_t until_ns, bool for_changes)
{
	const struct timespec at = {.tv_sec = (time_t)(until_ns / NS_PER_S),
				    .tv_nsec = (long)(until_ns % NS_PER_S)};

	while (!r->stops && !(for_changes && r->is_changed) && clock_monotonic_ns() < until_ns)
		pthread_cond_timedwait(&r->changed, &r->mutex, &at);
}

static void *run(void *context)
{
	struct registry *r = context;
	uint64_t due_ns = clock_monotonic_ns();
	bool frees;

	pthread_mutex_lock(&r->mutex);
	while (!r->stops) {
		uint64_t now_ns = clock_monotonic_ns();
		bool is_due = now_ns >= due_ns;

		if (is_due) /* a slow server gets a pause between requests */
			due_ns = (due_ns + REGISTRY_RENEW_MS * NS_PER_MS > now_ns ? due_ns : now_ns) +
				 REGISTRY_RENEW_MS * NS_PER_MS;
		r->is_changed = false;
		pthread_mutex_unlock(&r->mutex);
		registry_round(r, !is_due);
		pthread_mutex_lock(&r->mutex);
		wait_until(r, clock_monotonic_ns() + APART_NS, false);
		wait_until(r, due_ns, true);
	}
	pthread_mutex_unlock(&r->mutex);
	registry_farewell(r);
	pthread_mutex_lock(&r->mutex);
	r->is_done = true;
	frees = r->is_abandoned;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	if (frees)
		free_registry(r);
	return NULL;
}

int registry_settings(const char *url, unsigned wait_s, struct redis_settings *ret,
		      char prefix[REDIS_URL_PART], struct error *err)
{
	char kept[REDIS_ENV_URL] = "";
	int r = url ? 0 : redis_env_url(kept, err);

	if (r < 0)
		return r;
	r = redis_url_parse(url ? url : kept, false, &ret->url, err);
	explicit_bzero(kept, sizeof(kept));
	if (r < 0)
		error_prefix(err, "the cluster's Redis URL");
	if (r == 0)
		r = redis_env_credentials(&ret->url, err);
	if (r == 0)
		r = redis_env_settings(ret, wait_s, err);
	snprintf(prefix, REDIS_URL_PART, "%s", ret->url.prefix[0] ? ret->url.prefix : PREFIX);
	return r;
}

int registry_check(const char *url, struct error *err)
{
	struct redis_settings settings = {0};
	char prefix[REDIS_URL_PART];
	int r = registry_settings(url, 1, &settings, prefix, err);

	explicit_bzero(&settings, sizeof(settings));
	return r;
}

int registry_start(const char *url, const struct registry_member *self,
		   const struct registry_handler *handler, struct registry **ret, struct error *err)
{
	pthread_condattr_t monotonic;
	struct registry *r;
	int result;

	if (!member_is_name(self->node, strnlen(self->node, sizeof(self->node))))
		return error_set(err, -EINVAL,
				 "the node's name must be 1 to %d bytes of UTF-8 without control characters",
				 REGISTRY_NAME_BYTES - 1);
	if (!memchr(self->address, '\0', sizeof(self->address)) || !member_is_address(self->address))
		return error_set(
		    err, -EINVAL,
		    "the address that other nodes connect to must be an IP address with a port, such "
		    "as 10.0.0.1:7077 or [fd00::1]:7077");
	r = calloc(1, sizeof(*r));
	if (!r)
		return error_errno(err, -ENOMEM, "cannot start the registry of nodes");
	pthread_mutex_init(&r->mutex, NULL);
	pthread_mutex_init(&r->calling, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	r->handler = *handler;
	r->self = *self;
	r->server_is_up = -1;
	result = registry_settings(url, 1, &r->settings, r->prefix, err);
	r->settings.patience_ns = PATIENCE_NS;
	if (result == 0) {
		result = thread_start(&r->thread, run, r);
		if (result < 0)
			error_errno(err, result, "the registry's thread");
	}
	if (result < 0)
		free_registry(r);
	else
		*ret = r;
	return result;
}

void registry_stop(struct registry *r)
{
	const uint64_t until_ns = clock_monotonic_ns() + STOP_NS;
	const struct timespec at = {.tv_sec = (time_t)(until_ns / NS_PER_S),
				    .tv_nsec = (long)(until_ns % NS_PER_S)};
	bool is_done;

	if (!r)
		return;
	pthread_mutex_lock(&r->calling);
	pthread_mutex_lock(&r->mutex);
	r->stops = true;
	pthread_mutex_unlock(&r->calling);
	pthread_cond_broadcast(&r->changed);
	while (!r->is_done && clock_monotonic_ns() < until_ns)
		pthread_cond_timedwait(&r->changed, &r->mutex, &at);
	is_done = r->is_done;
	r->is_abandoned = !is_done;
	if (!is_done) /* the thread still waits for the server, or for name resolution */
		pthread_detach(r->thread);
	pthread_mutex_unlock(&r->mutex);
	if (is_done) {
		pthread_join(r->thread, NULL);
		free_registry(r);
	}
}

static struct registry_group *find(struct registry *r, const struct registry_group_id *id)
{
	for (size_t i = 0; i < r->n_groups; i++)
		if (strcmp(r->groups[i]->wanted.group.text, id->text) == 0)
			return r->groups[i];
	return NULL;
}

static int add_group(struct registry *r, const struct registry_group_key *key, struct registry_group **ret)
{
	size_t n = 0, n_of_uid = 0, n_with_left = 0;

	for (size_t i = 0; i < r->n_groups; i++) {
		const struct registry_group *g = r->groups[i];
		bool is_of_uid = g->wanted.key.uid == key->uid;

		n += !g->leaves;
		n_of_uid += !g->leaves && is_of_uid;
		n_with_left += is_of_uid;
	}
	if (n >= REGISTRY_MAX_GROUPS || r->n_groups == REGISTRY_SPACE || n_of_uid >= REGISTRY_MAX_OF_UID ||
	    n_with_left >= 2 * REGISTRY_MAX_OF_UID)
		return -ENOSPC;
	struct registry_group *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->groups[r->n_groups++] = g;
	*ret = g;
	return 0;
}

/* Copies a path. A long path is cut between characters, or anywhere if it is not UTF-8. */
static void copy_path(char ret[256], const char *path)
{
	size_t n = strnlen(path, 256);

	if (n == 256)
		for (n = 255; n > 252 && ((unsigned char)path[n] & 0xc0) == 0x80;)
			n--;
	memset(ret, 0, 256);
	memcpy(ret, path, n);
}

int registry_join(struct registry *r, const struct registry_group_key *key, const char *path,
		  uint64_t weight_bytes, const struct owner_lanes *lanes)
{
	struct registry_entry wanted = {.key = {.uid = key->uid}, .member = r->self};
	struct registry_group *g;
	int result = 0;

	/* Bytes after the end of the name are not part of the key. */
	snprintf(wanted.key.job, sizeof(wanted.key.job), "%.*s", (int)sizeof(key->job) - 1, key->job);
	memcpy(wanted.key.dataset, key->dataset, sizeof(wanted.key.dataset));
	registry_group_id(&wanted.key, &wanted.group);
	copy_path(wanted.path, path);
	wanted.member.lanes = *lanes;
	wanted.member.weight_bytes = weight_bytes < MEMBER_MAX_WEIGHT ? weight_bytes : MEMBER_MAX_WEIGHT;
	pthread_mutex_lock(&r->mutex);
	g = find(r, &wanted.group);
	if (!g)
		result = add_group(r, key, &g);
	if (result == 0) {
		g->wanted = wanted;
		g->leaves = false;
		g->is_changed = r->is_changed = true;
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->mutex);
	return result;
}

void registry_leave(struct registry *r, const struct registry_group_key *key)
{
	struct registry_group_id id;
	struct registry_group *g;

	registry_group_id(key, &id);
	pthread_mutex_lock(&r->mutex);
	g = find(r, &id);
	if (g) {
		g->leaves = g->is_changed = r->is_changed = true;
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->mutex);
}

int registry_publish(struct registry *r, const char *json)
{
	char *copy = strlen(json) < REGISTRY_REPORT_BYTES ? strdup(json) : NULL;

	if (!copy)
		return strlen(json) < REGISTRY_REPORT_BYTES ? -ENOMEM : -E2BIG;
	pthread_mutex_lock(&r->mutex);
	free(r->report);
	r->report = copy; /* the thread sends it with the next renewal */
	pthread_mutex_unlock(&r->mutex);
	return 0;
}
