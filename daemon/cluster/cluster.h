/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The nodes of a job share one copy of its dataset in their memory. The members of a group are the daemons
 * that serve the job. Each chunk has one owner among them (dataset/owner.h), who reads it from storage; the
 * others fetch it from the owner.
 *
 * Members find each other through Redis (dataset/registry.h), and communicate over TCP. A separate process,
 * dieseld-peer, does both. It parses data from the network, holds no rights, and sees only the memory that it
 * must send or fill. This is the daemon's side of it. Loop thread only.
 *
 * Peers hold copies and no rights. This node asks a peer for a chunk only after its own reader has opened the
 * chunk's file, with all checks; a peer sends only chunks that its own sessions of the same job may read; and
 * a received chunk is verified like one from storage. A peer is never needed: if it is slow, wrong or gone,
 * that costs a bounded wait, and the chunk is read from storage.
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
#define CLUSTER_MAX_READS   64 /* maximum reads of this node in progress; others wait here */

struct cluster_options {
	const char *redis;         /* URL; NULL: no cluster */
	const char *node;          /* this node's name; NULL: the host's */
	const char *listen;        /* address:port; port 0: any */
	const char *advertise;     /* address that others connect to; NULL: that of listen */
	const char *key_file;      /* pre-shared key; NULL: none, and only loopback addresses */
	uint64_t peer_bytes_per_s; /* maximum sent to each other node; 0: no limit */
};
/* Bounds of that limit. Below the minimum, no chunk arrives in time. */
#define CLUSTER_LIMIT_MIN (UINT64_C(1) << 20)
#define CLUSTER_LIMIT_MAX (UINT64_C(1) << 40)

/* Checks the options: addresses, name, URL and the key's file. Returns 0 or a negative errno, with *err set.
 */
int cluster_check(const struct cluster_options *options, struct error *err);
/* Reads the key, listens, and forks the process's keeper. Call it before there are threads; privileges may be
 * dropped afterwards. If another process has the address, this node shares nothing until that process
 * releases it. */
int cluster_fork(const struct cluster_options *options, struct fork_server *ret_keeper, struct error *err);

struct cluster;
struct cluster_group;
struct cluster_question;

struct cluster_handler {
	/* A member asks for a chunk of the group. Call cluster_answer() or cluster_refuse() exactly once, now
	 * or later, also after the group was left. */
	void (*asked)(void *user, struct cluster_group *group, const struct chunk_id *chunk,
		      struct cluster_question *question);
	/* The memory of this answer is no longer used: the answer was sent, or the member that asked has
	 * left. */
	void (*given)(void *user, void *answer);
	/* Members joined or left the group, so the owners of chunks have changed. */
	void (*changed)(void *user, struct cluster_group *group);
	void *user;
};

/* Takes over the keeper. 0 or a negative errno. */
int cluster_new(uv_loop_t *loop, struct fork_server *keeper, const struct cluster_handler *handler,
		struct cluster **ret);
/* Forgets all reads: done() is no longer called. The process may still write to their memory, so free it,
 * and do not reuse it. Calls given() for all answers; questions not answered yet may still be answered,
 * and given() is then called at once. The loop must run once more. Accepts NULL. */
struct cluster *cluster_free(struct cluster *c);

/* Joins the group of a job. A second call for the same job returns the same group, which must then be left
 * twice. path: only shown in the cluster's status. weight_bytes: memory that this node has for the dataset.
 * lanes: the lanes that this node serves. -ENOMEM, -EINVAL. */
int cluster_join(struct cluster *c, const struct registry_group_key *key, const char *path,
		 uint64_t weight_bytes, const struct owner_lanes *lanes, struct cluster_group **ret);
void cluster_leave(struct cluster_group *group);
/* Sets this node's weight. The other members learn the weight only if it differs by more than an eighth. */
void cluster_set_weight(struct cluster_group *group, uint64_t weight_bytes);
void cluster_set_lanes(struct cluster_group *group, const struct owner_lanes *lanes);
const struct owner_lanes *cluster_lanes(const struct cluster_group *group);
/* Returns the lanes of this node that reachable members serve, too. */
struct owner_lanes cluster_shared_lanes(const struct cluster_group *group);

/* Returns true if this node has to read the chunk from storage: it owns it, or no other member can be
 * reached. place NULL: all members serve the chunk. */
bool cluster_is_ours(const struct cluster_group *group, const struct chunk_id *chunk,
		     const struct owner_place *place);
/* Returns the number of members that can be reached, including this node. */
uint32_t cluster_n_members(const struct cluster_group *group);

/* A chunk that is being fetched from its owner. The caller owns the memory, which must stay valid until
 * done(). */
struct cluster_read {
	struct cluster_group *group;
	struct chunk_id chunk;
	struct owner_place place; /* finds the owner; lanes 0: all members serve the chunk */
	uint64_t bytes;           /* size of the chunk */
	int memory_fd;            /* borrowed until done() */
	uint64_t patience_ns;
	/* Private to the module. */
	struct cluster *cluster;
	uint64_t id, begin_ns, name_hash;
	uint32_t peer;
	char node[REGISTRY_NAME_BYTES];
	struct net_group_id group_id;
	bool is_sent;
	struct cluster_read *next;
	/* Called when the read has ended, never from within cluster_fetch(). result 0: all bytes are in
	 * memory, not verified. Else a negative errno with *err filled: -ENOENT: the peer has no session that
	 * may read the chunk, -EBUSY: the peer has too much to do, -ETIMEDOUT, -ECONNRESET, ... The memory is
	 * the caller's again only now: a late read ends only when the process has released it. */
	void (*done)(struct cluster_read *read, int result, const struct error *err);
};

/* Asks the owner for the chunk. The caller fills in group, chunk, place, bytes, memory_fd, patience_ns and
 * done. Returns 0, and done() is called later; -EAGAIN: this node owns the chunk, or the process is gone. */
int cluster_fetch(struct cluster_read *read);
/* Reports that the fetched bytes were not the chunk: logs this, and sends that peer no requests for a
 * while. */
void cluster_spoilt(struct cluster_read *read);

/* Answers with the chunk at the beginning of this memory. The memory must not change until given(). */
void cluster_answer(struct cluster_question *question, int memory_fd, uint64_t bytes, void *answer);
void cluster_refuse(struct cluster_question *question, int code);

struct cluster_peer_figures {
	char node[REGISTRY_NAME_BYTES];
	char address[64];
	bool is_connected, is_unreachable; /* an unreachable peer gets no requests until it answers again */
	uint64_t chunks_in, bytes_in, chunks_out, bytes_out, failed;
	double latency_s, bytes_per_s; /* moving averages over chunks from that peer; NAN: not measured */
};

struct cluster_figures {
	bool redis_is_up;
	uint64_t chunks_in, bytes_in, chunks_out, bytes_out; /* totals since the daemon started */
	uint64_t late, failed, spoilt, refused;              /* reads that storage had to serve instead */
};

/* Publishes this node's report, which people read on other nodes (registry_publish()); "" withdraws it.
 * -E2BIG, -EIO, ...; -EAGAIN, -EPIPE: not now, because the process is busy, or gone and being restarted. */
int cluster_publish(struct cluster *c, const char *json);

void cluster_figures_get(const struct cluster *c, struct cluster_figures *ret);
/* Returns the number of peers, and puts at most `n` of them in ret. */
size_t cluster_peers_get(const struct cluster *c, struct cluster_peer_figures *ret, size_t n);
/* A member of a group: this node or another one, reachable or not. */
struct cluster_member {
	char node[REGISTRY_NAME_BYTES];
	char address[64];
	uint64_t weight_bytes;
	bool is_self, is_unreachable;
};
size_t cluster_members_get(const struct cluster_group *g, struct cluster_member *ret, size_t n);
