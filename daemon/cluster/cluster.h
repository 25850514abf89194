/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The nodes of a job share one copy of its dataset in their memory. Of the daemons that serve the job, its
 * members, each chunk has one owner (dataset/owner.h), who reads it from storage; the others get it from
 * there.
 *
 * Members find each other through Redis (dataset/registry.h), and talk over TCP. All of that is done by a
 * process of its own, dieseld-peer, which parses what comes from the network, holds no rights and sees
 * nothing but the memory that it is to send or to fill; this is the daemon's side of it. Loop thread only.
 *
 * Peers hold copies and no rights. A chunk is asked of a peer only when this node's reader has just opened
 * the chunk's own file, with all its checks; a peer gives what its own sessions of the same job may read; and
 * what comes is verified like anything from storage. A peer is never needed: one that is slow, lies, or is
 * gone costs a bounded wait, and the chunk is read from storage.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/helpers/spawn.h"
#include "dataset/chunk_id.h"
#include "dataset/registry.h"
#include "lib/error.h"
#include "net_frame.h"

#define CLUSTER_MAX_MEMBERS 1024
#define CLUSTER_MAX_READS   64 /* of this node under way at one time; others wait here */

struct cluster_options {
	const char *redis;         /* URL; NULL: no cluster */
	const char *node;          /* this node's name; NULL: the host's */
	const char *listen;        /* address:port; port 0: any */
	const char *advertise;     /* what others connect to; NULL: as listen says */
	const char *key_file;      /* pre-shared key; NULL: none, and then loopback addresses alone */
	uint64_t peer_bytes_per_s; /* the most that is sent to each other node; 0: no limit */
};
/* Of that limit: with less, no chunk comes in time. */
#define CLUSTER_LIMIT_MIN (UINT64_C(1) << 20)
#define CLUSTER_LIMIT_MAX (UINT64_C(1) << 40)

/* Whether the options are right: addresses, name, URL and the key's file. */
int cluster_check(const struct cluster_options *options, struct error *err);
/* Reads the key, listens, and forks the process's keeper, before there are threads. Privileges may go
 * afterwards. Where another process has the address, this node is alone until that one lets go of it. */
int cluster_fork(const struct cluster_options *options, struct fork_server *ret_keeper, struct error *err);

struct cluster;
struct cluster_group;
struct cluster_question;

struct cluster_handler {
	/* A member asks for a chunk of the group. Answer now or later: cluster_answer() or cluster_refuse(),
	 * exactly once, also after the group was left. */
	void (*asked)(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		      struct cluster_question *question);
	/* The memory of this answer is no longer used: it was sent, or the asker has gone. */
	void (*given)(void *user, void *answer);
	/* Members of the group came or went: owners are others now. */
	void (*changed)(void *user, struct cluster_group *group);
	void *user;
};

/* Takes the keeper over. */
int cluster_new(uv_loop_t *loop, struct fork_server *keeper, const struct cluster_handler *handler,
		struct cluster **ret);
/* All reads are forgotten: no done() is called any more, and their memory is used by nobody else from then on
 * only if it is freed. All that was answered is given(); what was not answered yet may still be, to no effect
 * but given(). The loop must run once more. Accepts NULL. */
struct cluster *cluster_free(struct cluster *c);

/* A job of this node takes part. Joined twice: the same group, left twice. path, ranks: for people, in the
 * cluster's status. weight_bytes: of memory that this node has for the dataset. lanes: that it serves. */
int cluster_join(struct cluster *c, const struct registry_group_key *key, const char *path,
		 uint64_t weight_bytes, const struct owner_lanes *lanes, struct cluster_group **ret);
void cluster_leave(struct cluster_group *group);
/* Told again to others if it differs by more than an eighth. */
void cluster_set_weight(struct cluster_group *group, uint64_t weight_bytes);
void cluster_set_lanes(struct cluster_group *group, const struct owner_lanes *lanes);
const struct owner_lanes *cluster_lanes(const struct cluster_group *group);
/* The lanes of this node that other members serve, too. */
struct owner_lanes cluster_shared_lanes(const struct cluster_group *group);
const struct registry_group_key *cluster_group_key(const struct cluster_group *group);

/* Whether this node has the chunk to read: also where nobody else is there, or can be reached. place: NULL:
 * all members serve it. */
bool cluster_is_ours(const struct cluster_group *group, const struct chunk_id *chunk,
		     const struct owner_place *place);
/* Members that can be reached, with this node; 1: it is alone. */
uint32_t cluster_n_members(const struct cluster_group *group);

/* A chunk that is being had from its owner. The caller's memory, which stays until done(). */
struct cluster_read {
	struct cluster_group *group;
	struct chunk_id chunk;
	struct owner_place place; /* whose owner is asked; lanes 0: wherever it lies */
	uint64_t bytes;           /* of the chunk */
	int memory_fd;            /* borrowed until done() */
	uint64_t patience_ns;
	/* The module's. */
	struct cluster *cluster;
	uint64_t id, begin_ns, name_hash;
	uint32_t peer;
	char node[REGISTRY_NAME_BYTES];
	struct net_group_id group_id;
	bool is_sent;
	struct cluster_read *next;
	/* 0: all bytes are in memory, not verified; or a negative errno with *err filled: -ENOENT: the peer
	 * has no session that may read it, -EBUSY: it has too much to do, -ETIMEDOUT, -ECONNRESET, ...
	 * Never from within cluster_fetch(). Memory is the caller's again only then: a read that is late is
	 * over when the process has let go of it. */
	void (*done)(struct cluster_read *read, int result, const struct error *err);
};

/* Asks the owner. group, chunk, bytes, memory_fd, patience_ns, done: the caller's. Returns 0, and done() is
 * called later; -EAGAIN: it is ours, or the process is gone. */
int cluster_fetch(struct cluster_read *read);
/* What came from there was not the chunk: that peer is asked no more for a while, and that is said once. */
void cluster_spoilt(struct cluster_read *read);

/* The chunk lies at the beginning of this memory, which does not change until given(). */
void cluster_answer(struct cluster_question *question, int memory_fd, uint64_t bytes, void *answer);
void cluster_refuse(struct cluster_question *question, int code);

struct cluster_peer_figures {
	char node[REGISTRY_NAME_BYTES];
	char address[64];
	bool is_connected, is_unreachable; /* away: it is not asked, until it answers again */
	uint64_t chunks_in, bytes_in, chunks_out, bytes_out, failed;
	double latency_s, bytes_per_s; /* of the last chunks from there; NAN: not measured */
};

struct cluster_figures {
	bool redis_is_up;
	uint64_t chunks_in, bytes_in, chunks_out, bytes_out; /* ever */
	uint64_t late, failed, spoilt, refused;              /* reads that storage had to serve */
};

/* What people are told of this node, at other places (registry_publish(); "": nothing any more). -E2BIG, ...;
 * -EAGAIN, -EPIPE: not now, the process is busy, or gone and started again. */
int cluster_publish(struct cluster *c, const char *json);

void cluster_figures_get(const struct cluster *c, struct cluster_figures *ret);
/* Returns how many there are, of which at most `n` are put in ret. */
size_t cluster_peers_get(const struct cluster *c, struct cluster_peer_figures *ret, size_t n);
/* The members of a group, with this node, whether it can be reached or not. */
struct cluster_member {
	char node[REGISTRY_NAME_BYTES];
	char address[64];
	uint64_t weight_bytes;
	bool is_self, is_unreachable;
};
size_t cluster_members_get(const struct cluster_group *g, struct cluster_member *ret, size_t n);
