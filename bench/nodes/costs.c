/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the costs of membership, with the daemon's own code:
 *
 *	costs owner N           N members: ns to find the owner of a chunk, without lanes and with one lane
 *				per member
 *	costs members URL N S   N nodes in one group for S seconds: when each knew all of them, and then the
 *				CPU time of the process, which is the nodes'
 *
 * One line of JSON.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "dataset/owner.h"
#include "dataset/registry.h"

#define N_MAX    2048
#define N_CHUNKS 20000

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Returns ns per chunk. with_lanes: each chunk lies in one lane, and each member serves one. */
static double owner_ns(const struct owner_member *members, size_t n, bool with_lanes, size_t *sum)
{
	double begin = seconds(CLOCK_PROCESS_CPUTIME_ID);
	struct chunk_id chunk = {0};

	for (uint32_t i = 0; i < N_CHUNKS; i++) {
		uint32_t lane = i % (uint32_t)n;
		const struct owner_place place = {.lanes = (uint32_t)n, .first = lane, .end = lane + 1};

		memcpy(&chunk, &i, sizeof(i));
		*sum += owner_of(members, n, &chunk, with_lanes ? &place : NULL);
	}
	return (seconds(CLOCK_PROCESS_CPUTIME_ID) - begin) / N_CHUNKS * 1e9;
}

static int owner(size_t n)
{
	static struct owner_member members[N_MAX];
	size_t sum = 0;
	double ns, lanes_ns;

	for (size_t i = 0; i < n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "node%04zu", i);
		members[i] = (struct owner_member){.name_hash = owner_hash(name), .weight = 100 + i % 3};
		members[i].lanes.lanes = (uint32_t)n;
		owner_lanes_add(&members[i].lanes, (uint32_t)i, (uint32_t)i + 1);
	}
	ns = owner_ns(members, n, false, &sum);
	lanes_ns = owner_ns(members, n, true, &sum);
	printf("{\"ns\": %.1f, \"lanes_ns\": %.1f, \"sum\": %zu}\n", ns, lanes_ns, sum);
	return 0;
}

static atomic_size_t knowing[N_MAX]; /* number of members that node i knows */

static void on_members(void *user, const struct registry_group_id *group,
		       const struct registry_member *members, size_t n)
{
	(void)group;
	(void)members;
	atomic_store((atomic_size_t *)user, n);
}

static void on_server(void *user, bool is_up, const char *problem)
{
	(void)user;
	if (!is_up)
		fprintf(stderr, "costs: %s\n", problem);
}

static bool all_know(size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (atomic_load(&knowing[i]) != n)
			return false;
	return true;
}

static int members(const char *url, size_t n, double hold_s)
{
	static struct registry *nodes[N_MAX];
	const struct registry_group_key key = {.uid = 1, .job = "scaling"};
	double begin = seconds(CLOCK_MONOTONIC), known, cpu;

	for (size_t i = 0; i < n; i++) {
		struct registry_member self = {.incarnation = i + 1};
		const struct registry_handler handler = {
		    .members = on_members, .server = on_server, .user = &knowing[i]};
		struct error err = ERROR_INIT;

		snprintf(self.node, sizeof(self.node), "node%04zu", i);
		snprintf(self.address, sizeof(self.address), "10.%zu.%zu.1:7077", i / 256, i % 256);
		if (registry_start(url, &self, &handler, &nodes[i], &err) < 0 ||
		    registry_join(nodes[i], &key, "/data/photos", 64ull << 30, &(struct owner_lanes){0}) <
			0) {
			fprintf(stderr, "costs: %s\n", err.text);
			return 1;
		}
	}
	while (!all_know(n)) {
		if (seconds(CLOCK_MONOTONIC) - begin > 120) {
			fprintf(stderr, "costs: some nodes did not find all others within 120 s\n");
			return 1;
		}
		usleep(10000);
	}
	known = seconds(CLOCK_MONOTONIC) - begin;
	printf("{\"known_s\": %.2f}\n", known);
	fflush(stdout);
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	usleep((useconds_t)(hold_s * 1e6));
	printf("{\"cpu_s\": %.4f}\n", seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
	fflush(stdout);
	_exit(0); /* leaves the leases to expire */
}

int main(int argc, char **argv)
{
	size_t n = argc >= 3 ? strtoul(argv[argc == 3 ? 2 : 3], NULL, 10) : 0;

	if (n < 1 || n > N_MAX || (argc != 3 && argc != 5)) {
		fprintf(stderr, "usage: costs owner N | costs members URL N SECONDS\n");
		return 2;
	}
	return argc == 3 ? owner(n) : members(argv[2], n, strtod(argv[4], NULL));
}
