/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One connection to one Redis server, plain or by TLS, which sends commands in a batch and receives their
 * replies together. Every wait is limited, and so is the memory for replies, whatever a server sends. Not
 * thread-safe.
 */

#include <poll.h>

#include <hiredis/hiredis.h>

#include "redis_tls.h"

enum redis_script { SCRIPT_PUT, SCRIPT_SWEEP, SCRIPT_STATE, N_REDIS_SCRIPTS };

struct redis_login {
	const char *user, *password;  /* "": none */
	struct redis_tls_config *tls; /* NULL: plain */
	const char *names[2];         /* the host's own, and another one accepted in the certificate */
	const char *text;             /* names the server in errors */
	uint64_t silence_ns;          /* maximum silence of a server */
	uint64_t until_ns;            /* end of the time for TLS's handshake */
};

struct redis_facts {
	bool is_cluster;
	bool evicts; /* evicts keys when its memory is full */
	bool has_replicas;
	char sha[N_REDIS_SCRIPTS][41];
};

struct redis_conn;

#define REDIS_CONN_BYTES   (64 << 20) /* maximum bytes of the replies to a batch */
#define REDIS_CONN_OBJECTS (1 << 20)

/* Waits for one descriptor. Returns the events that poll() found, 0 after a signal, or -ETIMEDOUT. */
int redis_wait(int fd, short events, uint64_t until_ns);

/* Logs in and loads the scripts. fd: connected, does not block, and is closed at the end. -EACCES, -EPROTO:
 * this is no Redis server; -errno. */
int redis_conn_open(int fd, const struct redis_login *login, struct redis_conn **ret,
		    struct redis_facts *ret_facts, struct error *err);
void redis_conn_close(struct redis_conn *c);

/* Add commands to the next batch, after redis_conn_begin(). redis_conn_step() reports failures. */
void redis_conn_begin(struct redis_conn *c);
void redis_conn_add(struct redis_conn *c, const void *command, size_t bytes);
void redis_conn_add_text(struct redis_conn *c, size_t n, const char *const *args);
size_t redis_conn_n(const struct redis_conn *c);

/* 1: all replies are there; 0: poll for *ret until then, and call again; -ETIMEDOUT: silent for too
 * long; -ECONNRESET, -EPROTO, ... */
int redis_conn_step(struct redis_conn *c, struct pollfd *ret, uint64_t *ret_until_ns);
/* Return reply i, or NULL if it has not arrived. */
redisReply *redis_conn_take(struct redis_conn *c, size_t i); /* the caller owns it */
const redisReply *redis_conn_reply(const struct redis_conn *c, size_t i);
/* Sends the added commands and waits for all replies. 0 or as redis_conn_step(). */
int redis_conn_run(struct redis_conn *c);
