/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside dieseld-peer: one thread with an event loop, and the registry's. A peer that misbehaves harms only
 * its own connections: each has its own bounds on memory, descriptors, time and questions.
 *
 *	net.c           the loop, orders of the daemon, reports to it, groups and their members, other nodes
 *	                and whether they are reachable, incoming connections
 *	net_sources.c   rate limits for these
 *	net_conn.c      a connection: securing it, hellos, pings, frames in and out
 *	net_chunks.c    the frames' contents: chunks that this node fetches, and chunks that others fetch
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "cluster_message.h"
#include "dataset/checksum.h"
#include "dataset/registry.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "net_address.h"
#include "net_frame.h"
#include "net_sources.h"
#include "outbox.h"

struct net_tls_keys;

#define NET_TICK_MS 100
/* Time limit from the connection, or the attempt to connect, to the other side's hello. */
#define NET_HELLO_NS (2 * NS_PER_S)
/* Maximum pause within a frame: after that the peer is stuck. */
#define NET_STALL_NS (2 * NS_PER_S)
#define NET_PING_NS  NS_PER_S
/* Maximum silence: a working peer answers pings, so something arrives. */
#define NET_SILENCE_NS (3 * NS_PER_S)
/* Maximum time in which the peer accepts none of the bytes to send. */
#define NET_SEND_NS (5 * NS_PER_S)

#define NET_BUFFER_BYTES ((size_t)2 << 20)
#define NET_RING         512u /* frames that wait to be sent */

struct net;
struct net_conn;
struct net_peer;

/* A chunk that this node has asked for. */
struct net_ask {
	struct net_ask *next;
	struct net_conn *conn;
	uint64_t id, bytes, begin_ns, end_ns;
	int memory_fd; /* negative: the daemon already has the result, and further bytes are discarded */
	uint64_t written;
	uint8_t *buffer; /* bytes received after `written` */
	size_t filled;
	struct checksum_stream *sum;
};

enum net_question_state {
	NET_QUESTION_WAITS,
	NET_QUESTION_ASKED, /* the daemon was asked */
	NET_QUESTION_GIVES,
};

/* A chunk that a peer asked for. */
struct net_question {
	struct net_question *next;
	enum net_question_state state;
	uint64_t id;      /* id that the peer chose */
	uint64_t here_id; /* id for the daemon */
	uint64_t bytes, sent;
	uint64_t end_ns; /* deadline for sending the whole chunk; set in NET_QUESTION_GIVES */
	struct net_group_id group;
	struct chunk_id chunk;
	int memory_fd;
	int32_t stop; /* negative errno: sending stops, with this code */
	struct checksum_stream *sum;
};

enum net_conn_state {
	NET_CONNECTING,
	NET_SECURING,
	NET_GREETING,
	NET_OPEN,
	NET_CLOSED,
};

struct net_conn {
	struct net_conn *next; /* net.conns */
	struct net *net;
	struct net_peer *peer; /* the peer that is dialled, or that identified itself; NULL: not known yet */
	enum net_conn_state state;
	bool dialled, is_known; /* is_known: the owner of its other end was checked */
	int fd;
	uv_poll_t poll;
	int polls; /* events polled for now */
	struct net_address far;
	struct net_source source; /* source of an incoming connection */
	char address[NET_ADDRESS_BYTES];
	struct ssl_st *tls;               /* NULL: not encrypted */
	bool tls_writes;                  /* the handshake waits to write */
	uint64_t begin_ns, in_ns, out_ns; /* begin_ns: when the connection was made; in_ns, out_ns: when bytes
					     last arrived and left */
	struct net_parser parser;
	/* In. */
	struct net_ask *piece_of; /* the chunk whose bytes are arriving */
	bool is_paused;           /* nothing is read: the peer asks too much, or does not take its answers */
	bool reads_again;         /* TLS has more to read than one turn allows */
	struct net_conn *next_again;
	/* Out. */
	struct net_frame *ring;
	uint32_t ring_first, ring_n;
	uint8_t *out; /* bytes being sent; NULL: none */
	size_t out_at, out_bytes;
	/* Questions. */
	struct net_ask *asks;
	uint32_t n_asks;
	struct net_question *questions, *gives; /* gives: the question whose pieces are being sent */
	uint32_t n_questions, n_asked;
	struct net_budget accepts; /* questions and pings accepted at present */
	uint64_t ping_id, ping_ns; /* the last ping, and when it was sent; ping_id 0: none yet */
	bool ping_waits;
};

struct net_peer {
	uint32_t index;
	uint64_t name_hash, incarnation;
	char node[REGISTRY_NAME_BYTES];
	struct net_address address;
	bool has_address, is_member;
	struct net_conn *conn;    /* the open connection */
	struct net_conn *dialled; /* a connection that is being made */
	uint64_t dial_ns, back_off_ns;
	/* Unreachable: not asked until it has answered a ping that was sent after unreachable_ns, and not
	 * before back_ns. */
	bool is_unreachable, said_unreachable;
	uint64_t unreachable_ns, back_ns;
	uint32_t n_late;  /* number of consecutive chunks that arrived too late */
	uint64_t done_ns; /* time when the last chunk was complete */
	uint64_t idle_ns; /* time since which it is not a member and has no questions */
	bool is_changed;  /* not yet reported to the daemon */
	struct cluster_peer_figures figures;
	double latency_s, bytes_per_s; /* moving averages; 0: none yet */
};

struct net_group {
	struct net_group *next;
	struct registry_group_key key;
	struct registry_group_id text;
	struct net_group_id id;
	struct net_update *last; /* its members; NULL: not known yet */
};

struct net_update {
	struct net_update *next;
	struct registry_group_id group;
	size_t n;
	struct registry_member members[];
};

/* Events of a connection whose peer is known. */
struct net_conn_handler {
	void (*answered)(struct net_conn *c);              /* the peer answered the ping of c->ping_ns */
	void (*lost)(struct net_conn *c, const char *why); /* why: as for net_conn_close() */
};

struct net {
	const struct cluster_config *config;
	const struct net_conn_handler *on_conn;
	uint64_t incarnation;
	uv_loop_t loop;
	struct outbox outbox;
	uv_poll_t daemon;
	uv_timer_t tick;
	uv_idle_t again;
	uint64_t now_ns, tick_ns;
	struct net_tls_keys *keys; /* NULL: connections are not encrypted */

	int listen_fd;
	uv_poll_t listener;
	bool listens;
	uint64_t listen_ns; /* time of the next attempt to listen */
	struct net_sources sources;
	struct net_budget accepts; /* connections accepted at present */
	struct log_limit said_accept, said_conn, said_problem;

	struct registry *registry;
	pthread_mutex_t lock; /* protects the next three members, which the registry's thread writes */
	struct net_update *updates;
	bool server_is_up, server_changed;
	uv_async_t wake;

	struct net_group *groups;
	struct net_peer *peers[CLUSTER_MAX_PEERS];
	struct net_conn *conns, *agains;
	uint32_t n_half;
	uint64_t next_id;    /* id of the next question or ping */
	uint32_t n_asked;    /* questions that the daemon has not answered */
	uint8_t *buffers[8]; /* free buffers of NET_BUFFER_BYTES */
	uint32_t n_buffers;
	uint8_t *shared; /* receive buffer, for all connections */
};

/* net.c */
void net_report(struct net *n, const struct cluster_report *report);

/* Finds or adds the peer of this name. NULL: there are too many, or no memory. */
struct net_peer *net_peer_get(struct net *n, const char *node);
struct net_peer *net_peer_at(struct net *n, uint32_t index, uint64_t name_hash);
/* Marks the peer as unreachable. It is not asked for at least for_ns, whatever it answers. */
void net_peer_set_unreachable(struct net *n, struct net_peer *p, uint64_t for_ns, const char *why);

/* net_conn.c */
int net_conn_new(struct net *n, int fd, const struct net_address *far, struct net_peer *dialled,
		 struct net_conn **ret);
/* Closes the connection and ends its questions. why: the reason; NULL: nobody's fault. */
void net_conn_close(struct net_conn *c, const char *why);
void net_conn_tick(struct net_conn *c);
/* Queues a frame. It is sent soon: net_conn_poll(). */
void net_conn_send(struct net_conn *c, enum net_kind kind, uint64_t id, int32_t code, uint64_t bytes);
void net_conn_send_frame(struct net_conn *c, const struct net_frame *frame);
void net_conn_poll(struct net_conn *c);
/* Derives the group's keys from the secret. 0 or a negative errno. */
int net_tls_keys_new(const uint8_t *key, size_t bytes, struct net_tls_keys **ret, struct error *err);

/* net_chunks.c: the frames of a connection, other than pings. */
/* Takes an order of the daemon: CLUSTER_FETCH, CLUSTER_ANSWER or CLUSTER_REFUSE. */
void net_chunks_order(struct net *n, const struct cluster_order *o, int memory_fd);
/* Takes a frame. Negative: the peer violates the protocol. */
int net_chunks_frame(struct net_conn *c, const struct net_frame *f);
/* Returns how many of the next bytes may be received directly at *ret; 0: none. */
size_t net_chunks_space(struct net_conn *c, uint8_t **ret);
/* Takes bytes of the last piece, which may lie where net_chunks_space() permits. */
void net_chunks_bytes(struct net_conn *c, const uint8_t *data, size_t bytes);
/* Writes the next frame of an answer with its bytes to data. Returns how many bytes it wrote; 0: there is
 * nothing to send, or `space` is too small. */
size_t net_chunks_next(struct net_conn *c, uint8_t *data, size_t space);
/* Returns true if questions may be read. */
bool net_chunks_may_read(struct net_conn *c);
void net_chunks_tick(struct net_conn *c);
/* Ends all questions of a closed connection. why: as for net_conn_close(). */
void net_chunks_lost(struct net_conn *c, const char *why);
