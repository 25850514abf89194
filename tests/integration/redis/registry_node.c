/* SPDX-License-Identifier: Apache-2.0 */
/*
 * registry_node URL NODE ADDRESS is a node with only its registry. It takes lines "join UID JOB WEIGHT
 * [VERSION]", "leave UID JOB", "publish JSON" and "stop". It writes a line for each event: "members JOB
 * NODE@ADDRESS/INCARNATION/WEIGHT ...", "server up", "server down: PROBLEM". registry_node list URL and
 * registry_node reports URL print the results of registry_list() and registry_reports().
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/registry.h"
#include "lib/clock.h"

#define MAX_JOBS 512

static struct {
	struct registry_group_id id;
	char job[REGISTRY_NAME_BYTES];
} jobs[MAX_JOBS];
static size_t n_jobs;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void members(void *user, const struct registry_group_id *group, const struct registry_member *m,
		    size_t n)
{
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < n_jobs; i++)
		if (strcmp(jobs[i].id.text, group->text) == 0)
			printf("members %s", jobs[i].job);
	for (size_t i = 0; i < n; i++)
		printf(" %s@%s/%llu/%llu", m[i].node, m[i].address, (unsigned long long)m[i].incarnation,
		       (unsigned long long)m[i].weight_bytes);
	printf("\n");
	pthread_mutex_unlock(&mutex);
}

static void server(void *user, bool is_up, const char *problem)
{
	printf("server %s%s%s\n", is_up ? "up" : "down", problem ? ": " : "", problem ? problem : "");
}

static struct registry_group_key key_of(unsigned uid, const char *job, unsigned char version)
{
	struct registry_group_key key = {.uid = uid, .dataset = {1, 2, version}};

	snprintf(key.job, sizeof(key.job), "%s", job);
	return key;
}

static int join(struct registry *r, unsigned uid, const char *job, unsigned long long weight,
		unsigned char version)
{
	struct registry_group_key key = key_of(uid, job, version);

	pthread_mutex_lock(&mutex);
	if (n_jobs < MAX_JOBS) {
		registry_group_id(&key, &jobs[n_jobs].id);
		memcpy(jobs[n_jobs++].job, key.job, sizeof(key.job));
	}
	pthread_mutex_unlock(&mutex);
	return registry_join(r, &key, "/data/set", weight, &(struct owner_lanes){0});
}

static int fail(const struct error *err)
{
	fprintf(stderr, "%s\n", err->text);
	return 1;
}

static int list(const char *url)
{
	struct error err = ERROR_INIT;
	struct registry_entry *entries;
	size_t n;

	if (registry_list(url, &entries, &n, &err) < 0)
		return fail(&err);
	for (size_t i = 0; i < n; i++)
		printf("%s %u %s %s %s\n", entries[i].group.text, entries[i].key.uid, entries[i].key.job,
		       entries[i].member.node, entries[i].path);
	free(entries);
	return 0;
}

static int reports(const char *url)
{
	struct error err = ERROR_INIT;
	struct registry_report *found;
	size_t n;

	if (registry_reports(url, &found, &n, &err) < 0)
		return fail(&err);
	for (size_t i = 0; i < n; i++)
		printf("%s %llu %s\n", found[i].node, (unsigned long long)found[i].age_ms, found[i].json);
	registry_reports_free(found, n);
	return 0;
}

static void serve(struct registry *r)
{
	char line[4096], job[4096];
	unsigned long long weight;
	unsigned uid;

	while (fgets(line, sizeof(line), stdin) && strcmp(line, "stop\n") != 0) {
		unsigned char version = 3;
		int result = 0;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "join %u %s %llu %hhu", &uid, job, &weight, &version) >= 3) {
			result = join(r, uid, job, weight, version);
		} else if (sscanf(line, "leave %u %s", &uid, job) == 2) {
			struct registry_group_key key = key_of(uid, job, version);

			registry_leave(r, &key);
		} else if (strncmp(line, "publish ", 8) == 0) {
			result = registry_publish(r, line + 8);
		}
		if (result < 0)
			printf("refused %d %s\n", result, line);
	}
}

int main(int argc, char **argv)
{
	const struct registry_handler handler = {.members = members, .server = server};
	struct registry_member self = {.incarnation = clock_realtime_ns()};
	struct error err = ERROR_INIT;
	struct registry *r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3)
		return strcmp(argv[1], "list") == 0 ? list(argv[2]) : reports(argv[2]);
	if (argc != 4)
		return 2;
	snprintf(self.node, sizeof(self.node), "%s", argv[2]);
	snprintf(self.address, sizeof(self.address), "%s", argv[3]);
	if (registry_start(argv[1], &self, &handler, &r, &err) < 0)
		return fail(&err);
	serve(r);
	registry_stop(r);
	return 0;
}
