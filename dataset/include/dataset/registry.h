/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The registry of groups and their members, with leases, in Redis (standalone or Cluster). A thread of
 * dieseld-peer talks to the server (dataset/redis: redis_link.h). The server may be slow, and no other thread
 * waits for it.
 *
 * Each member has a key with an expiry (REGISTRY_LEASE_MS), and writes the key three times in that time. A
 * member that stops renewing is removed when its key expires, by the server's clock only. Keys of a group
 * share one slot ({GROUP}): an index of node names, and one value per node. After a flush, or after the
 * server lost its memory, one renewal of each member restores all keys. While the server is down, and for one
 * lease after, the last known members stay. Unreachable members are found by asking them.
 *
 * A value has the node's name, address, weight and incarnation (a random number per start, which tells a node
 * that returned from one that never left), and for people: job, uid, dataset's path. Values of other nodes
 * are checked here; a node with an invalid value is no member.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/owner.h"
#include "lib/error.h"

#define REGISTRY_NAME_BYTES  64 /* maximum length of a node's or job's name, with the NUL */
#define REGISTRY_LEASE_MS    3000
#define REGISTRY_RENEW_MS    1000
#define REGISTRY_MAX_GROUPS  256
#define REGISTRY_MAX_OF_UID  32 /* maximum groups of one user, so that others get a share */
#define REGISTRY_MAX_MEMBERS 1024

/* Key under which jobs on several nodes are one group: the user, the launcher's name for the job, the dataset
 * and its version. */
struct registry_group_key {
	uint32_t uid;
	char job[REGISTRY_NAME_BYTES]; /* NUL-terminated */
	uint8_t dataset[16];           /* the snapshot's digest */
};

struct registry_member {
	char node[REGISTRY_NAME_BYTES];
	char address[64]; /* numeric, with port */
	uint64_t incarnation, weight_bytes;
	struct owner_lanes lanes;
};

struct registry_group_id {
	char text[33]; /* hexadecimal XXH3-128 of the group's key */
};
void registry_group_id(const struct registry_group_key *key, struct registry_group_id *ret);

/* Called on the registry's thread, which may join and leave, and not stop. */
struct registry_handler {
	/* Reports all members that the server knows now, sorted by node, including this node; only when they
	 * changed. Calls may still come for a group that was just left. After the server was down or lost its
	 * memory, the known members stay for one more lease, in which they register again. */
	void (*members)(void *user, const struct registry_group_id *group,
			const struct registry_member *members, size_t n);
	/* Reports that the server's state changed. problem: one line, or NULL; set also while the server is
	 * up if another node has this node's name. */
	void (*server)(void *user, bool is_up, const char *problem);
	void *user;
};

struct registry;

/* Starts the registry and does not wait for the server. self: node, address and incarnation of this node. The
 * URL is one of dataset/redis: user and password may be in DIESEL_REDIS or the file DIESEL_REDIS_FILE,
 * certificates as described there; keys begin with its prefix, or "diesel". -EINVAL */
int registry_start(const char *url, const struct registry_member *self,
		   const struct registry_handler *handler, struct registry **ret, struct error *err);
/* Checks that registry_start() would accept this URL and its settings: -EINVAL. Contacts no server. */
int registry_check(const char *url, struct error *err);
/* Removes this node's keys, if the server answers within half a second. No handler is called afterwards.
 * Accepts NULL. */
void registry_stop(struct registry *r);
/* Join or leave a group. From any thread. Both return without waiting, and the server is notified
 * immediately. Joining again changes the group's path, weight and lanes; one leave suffices. -ENOSPC: too
 * many groups, of this user or in total. */
int registry_join(struct registry *r, const struct registry_group_key *key, const char *path,
		  uint64_t weight_bytes, const struct owner_lanes *lanes);
void registry_leave(struct registry *r, const struct registry_group_key *key);

/* Checks that this is the URL of a server, with the user and password from the environment. -EINVAL, ... */
int registry_check_url(const char *url, struct error *err);

/* One member of one group, for `dieselctl cluster status` and diesel-top --nodes: read from any machine that
 * reaches the server. */
struct registry_entry {
	struct registry_group_id group;
	struct registry_group_key key;
	char path[256];
	struct registry_member member;
};
/* Lists all groups' members. url NULL: that of DIESEL_REDIS or DIESEL_REDIS_FILE (-ENOKEY: neither is set).
 * Sorted by group, then by node. Reads at most REGISTRY_MAX_LISTED, against forged entries. Caller frees
 * *ret. */
#define REGISTRY_MAX_LISTED 65536
int registry_list(const char *url, struct registry_entry **ret, size_t *ret_n, struct error *err);

/* Publishes this node's report for people: JSON, at most this many bytes with the NUL (-E2BIG). The server
 * keeps it until the next report or for REGISTRY_REPORT_MS, even after the node is gone: so people see which
 * node went silent. "" removes the report. From any thread; returns at once. */
#define REGISTRY_REPORT_BYTES 32768
#define REGISTRY_REPORT_MS    600000
int registry_publish(struct registry *r, const char *json);

struct registry_report {
	char node[REGISTRY_NAME_BYTES];
	char *json;      /* unchecked text from the server, without NUL */
	uint64_t age_ms; /* since the node published it, by the server's clock */
};
/* url as in registry_list(). Sorted by node; at most REGISTRY_MAX_MEMBERS. */
int registry_reports(const char *url, struct registry_report **ret, size_t *ret_n, struct error *err);
void registry_reports_free(struct registry_report *reports, size_t n);
