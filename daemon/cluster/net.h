/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside dieseld-peer: one thread with an event loop, and the registry's. What a peer does costs only
 *connections of that peer: memory, descriptors, time and questions have a bound for each.
 *
 *	net.c           the loop, orders of the daemon, reports to it, groups and who is in them
 *	net_peer.c      other nodes: which there are, connecting to them, away or not
 *	net_accept.c    connections that come
 *	net_sources.c   how often they may
 *	net_conn.c      a connection: securing it, hellos, bytes in and out
 *	net_ask.c       chunks that this node wants
 *	net_give.c      chunks that others want
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
#include "net_tls.h"
#include "outbox.h"

#define NET_TICK_MS 100
/* From the first byte, or the attempt to connect, to the other one's hello. */
#define NET_HELLO_NS (2 * NS_PER_S)
/* Within a frame, bytes come one after the other, or the peer is stuck. */
#define NET_STALL_NS (2 * NS_PER_S)
#define NET_PING_NS  NS_PER_S
/* A peer that is there answers pings, so something comes. */
#define NET_SILENCE_NS (3 * NS_PER_S)
/* What is to be sent is taken, at least a little. */
#define NET_SEND_NS (5 * NS_PER_S)

#define NET_BUFFER_BYTES ((size_t)2 << 20)
#define NET_RING         512u /* frames that wait to be sent */

struct net;
struct net_conn;
struct net_peer;

/* A chunk that this node asked for. */
struct net_ask {
	struct net_ask *next;
	struct net_conn *conn;
	uint64_t id, bytes, begin_ns, end_ns;
	int memory_fd; /* negative: the daemon was told how it ended, and what still comes is thrown away */
	uint64_t written;
	uint8_t *buffer; /* what was received after `written` */
	size_t filled;
	struct checksum_stream *sum;
};

enum net_question_state {
	NET_QUESTION_WAITS,
	NET_QUESTION_ASKED, /* the daemon is */
	NET_QUESTION_GIVES,
};

/* A chunk that a peer asked for. */
struct net_question {
	struct net_question *next;
	enum net_question_state state;
	uint64_t id;      /* the peer's */
	uint64_t here_id; /* the daemon's */
	uint64_t bytes, sent;
	uint64_t end_ns; /* while it gives: when all has to be sent */
	struct net_group_id group;
	struct chunk_id chunk;
	int memory_fd;
	int32_t stop; /* a negative errno: no longer given */
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
	struct net_peer *peer; /* the one that is dialled, or that said who it is */
	enum net_conn_state state;
	bool dialled, is_known; /* known: its owner or key is */
	int fd;
	uv_poll_t poll;
	int polls; /* events, as of now */
	struct net_address far;
	struct net_source source; /* of one that came */
	char address[NET_ADDRESS_BYTES];
	struct net_tls *tls;
	bool tls_writes;                  /* the handshake waits for that */
	uint64_t begin_ns, in_ns, out_ns; /* last bytes */
	struct net_parser parser;
	/* In. */
	struct net_ask *piece_of; /* whose bytes come now */
	bool is_paused;           /* nothing is read: the other one asks too much, or does not take answers */
	bool reads_again;         /* there is more to read than one turn allows */
	struct net_conn *next_again;
	/* Out. */
	struct net_frame *ring;
	uint32_t ring_first, ring_n;
	uint8_t *out; /* NULL: nothing is under way */
	size_t out_at, out_bytes;
	/* Asked. */
	struct net_ask *asks;
	uint32_t n_asks;
	struct net_question *questions,
	    *gives; /* gives: the one whose pieces go now; it is among the questions */
	uint32_t n_questions, n_asked;
	double tokens; /* questions that may come now */
	uint64_t tokens_ns;
	uint64_t ping_id, ping_ns; /* the last one, and when; ping_id 0: none yet */
	bool ping_waits;
};

struct net_peer {
	uint32_t index;
	uint64_t name_hash, incarnation;
	char node[REGISTRY_NAME_BYTES];
	struct net_address address;
	bool has_address, is_member;
	struct net_conn *conn;    /* open */
	struct net_conn *dialled; /* on its way to be */
	uint64_t dial_ns, back_off_ns;
	/* Away: it is not asked until it has answered a ping that was sent after unreachable_ns, and not
	 * before. */
	bool is_unreachable, said_unreachable;
	uint64_t unreachable_ns, back_ns;
	uint32_t n_late;  /* one after the other */
	uint64_t done_ns; /* when the last chunk came whole */
	uint64_t idle_ns; /* since when it is neither member nor asked */
	bool is_changed;  /* the daemon does not know */
	struct cluster_peer_figures figures;
	double latency_s, bytes_per_s; /* means; 0: none yet */
};

struct net_group {
	struct net_group *next;
	struct registry_group_key key;
	struct registry_group_id text;
	struct net_group_id id;
	struct registry_member *members;
	size_t n;
};

struct net_update {
	struct net_update *next;
	struct registry_group_id group;
	size_t n;
	struct registry_member members[];
};

struct net {
	const struct cluster_config *config;
	uint64_t incarnation;
	uv_loop_t loop;
	struct outbox outbox;
	uv_poll_t daemon;
	uv_timer_t tick;
	uv_idle_t again;
	uint64_t now_ns, tick_ns;
	struct net_tls_keys *keys; /* NULL: connections are not secured */

	int listen_fd;
	uv_poll_t listener;
	bool listens;
	uint64_t listen_ns; /* when to listen again */
	struct net_sources sources;
	double accept_tokens;
	uint64_t accept_ns;
	struct log_limit said_accept, said_conn, said_problem;

	struct registry *registry;
	pthread_mutex_t lock; /* of what comes from the registry's thread: */
	struct net_update *updates;
	bool server_is_up, server_changed;
	uv_async_t wake;

	struct net_group *groups;
	struct net_peer *peers[CLUSTER_MAX_PEERS];
	struct net_conn *conns, *agains;
	uint32_t n_half;
	uint64_t next_id;    /* of questions and pings */
	uint32_t n_asked;    /* questions that the daemon has */
	uint8_t *buffers[8]; /* of NET_BUFFER_BYTES, not in use */
	uint32_t n_buffers;
	uint8_t *shared; /* where bytes are received */
};

/* net.c */
void net_report(struct net *n, const struct cluster_report *report);
/* Of NET_BUFFER_BYTES; NULL: no memory. */
uint8_t *net_buffer_take(struct net *n);
void net_buffer_give(struct net *n, uint8_t *buffer);

/* net_peer.c */
/* NULL: there are too many, or no memory. */
struct net_peer *net_peer_get(struct net *n, const char *node);
struct net_peer *net_peer_at(struct net *n, uint32_t index, uint64_t name_hash);
void net_peer_set_address(struct net *n, struct net_peer *p, const char *address);
void net_peer_tick(struct net *n, struct net_peer *p);
/* It failed; for_ns: it is not asked for so long, whatever it answers. */
void net_peer_set_unreachable(struct net *n, struct net_peer *p, uint64_t for_ns, const char *why);
void net_peer_answered(struct net *n, struct net_peer *p, uint64_t ping_ns);
void net_peer_report(struct net *n, struct net_peer *p);
/* A connection of the peer's is closed. */
void net_peer_lost(struct net *n, struct net_peer *p, struct net_conn *c, const char *why);

/* net_accept.c */
void net_accept_start(struct net *n);
void net_accept_tick(struct net *n);
void net_accept_stop(struct net *n, uint64_t for_ns);

/* net_conn.c */
int net_conn_new(struct net *n, int fd, const struct net_address *far, struct net_peer *dialled,
		 struct net_conn **ret);
/* Closes it, and ends what was under way. why: NULL: nobody's fault. */
void net_conn_close(struct net_conn *c, const char *why);
void net_conn_tick(struct net_conn *c);
/* Puts a frame in line. It is sent soon: net_conn_poll(). */
void net_conn_send(struct net_conn *c, enum net_kind kind, uint64_t id, int32_t code, uint64_t bytes);
void net_conn_send_frame(struct net_conn *c, const struct net_frame *frame);
void net_conn_poll(struct net_conn *c);

/* net_ask.c */
void net_ask_begin(struct net *n, const struct cluster_order *o, int memory_fd);
/* Frames that answer. Negative: the peer does not keep to the protocol. */
int net_ask_piece(struct net_conn *c, const struct net_frame *f);
int net_ask_bytes(struct net_conn *c, const uint8_t *data, size_t bytes);
int net_ask_end(struct net_conn *c, const struct net_frame *f);
/* Where the bytes that come next may be received, and how many; 0: not there. */
size_t net_ask_space(struct net_conn *c, uint8_t **ret);
int net_ask_received(struct net_conn *c, size_t bytes);
void net_ask_tick(struct net_conn *c);
void net_ask_lost(struct net_conn *c, const char *why);

/* net_give.c */
void net_give_question(struct net_conn *c, const struct net_frame *f);
void net_give_cancel(struct net_conn *c, const struct net_frame *f);
void net_give_answer(struct net *n, const struct cluster_order *o, int memory_fd);
void net_give_refuse(struct net *n, const struct cluster_order *o);
/* The next frame of an answer with its bytes, at most `space` of them. Returns how many, 0: there is none. */
size_t net_give_next(struct net_conn *c, uint8_t *data, size_t space);
/* Returns true if questions may be read. */
bool net_give_may_read(struct net_conn *c);
void net_give_tick(struct net_conn *c);
void net_give_lost(struct net_conn *c);
