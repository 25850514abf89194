/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A client connection. Shared by connection.c, server.c and status.c. */

#include "client/transport.h"
#include "server.h"

struct subset;

struct connection {
	struct connection *next;
	struct server *server;
	int fd;
	uv_poll_t poll;
	int owner_fd; /* descriptor of the process that opened the session (peer.h); -1: unknown */
	uv_poll_t owner;
	uint32_t n_handles;
	int64_t pid;
	uint32_t uid;
	uint32_t payer; /* cache_quota.h */
	bool is_admin;  /* connected through the administrators' socket */
	bool greeted;
	uint32_t version;             /* protocol version; valid if greeted */
	struct wire_origin origin;    /* origin of the next session, as reported by the client */
	char field[WIRE_FIELD_BYTES]; /* field that the next session decodes; "": none */
	bool overdue;
	uint64_t due_ns;                /* the connection is cut if no message has come by then; 0: never */
	uint16_t sequence;              /* number of the request that is being answered */
	struct open_request *opening;   /* dataset being opened: nothing more is read from the client */
	struct plugin_question *asking; /* running query of a codec's output: nothing more is read, either */
	bool orphaned; /* the socket has ended, but its process still has batches of the session */
	bool orphan_told;
	bool closed;
	struct cached_dataset *dataset;
	struct chunk_place *place; /* the dataset's chunks as this client sees them */
	struct session *session;
	uint64_t *subset_words;     /* subset for the next session; NULL: none was sent */
	uint64_t subset_bytes;      /* cache space reserved for the subset */
	struct resident_uses *uses; /* chunks that the client reads in place; NULL: it has not asked */
	struct fetcher *fetcher;    /* the client's process that reads the dataset's chunks */
	uint64_t landing_bytes;     /* cache space reserved for the fetcher's reads */
	uint64_t batch_bytes;       /* reserved for batches of the session that is being opened */
	struct shared_memory text;  /* reply to its last STATUS, JOBS, WHY or SET */
};

/* Bytes of the cache that are reserved for the copy of a snapshot that is being opened. */
uint64_t connection_opening_bytes(const struct connection *c);
/* All that the connection has reserved: the former, and what the cache's slot_bytes contain already. */
uint64_t connection_reserved_bytes(const struct connection *c);
