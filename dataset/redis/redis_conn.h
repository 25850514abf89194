/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One connection to one Redis server, plain or by TLS, from which commands go out together and replies come
 * back together. Nothing waits without end. Not thread-safe.
 */

#include <poll.h>

#include "redis_reader.h"
#include "redis_slots.h"
#include "redis_tls.h"

enum redis_script { SCRIPT_PUT, SCRIPT_SWEEP, SCRIPT_STATE, N_REDIS_SCRIPTS };

struct redis_login {
	const char *user, *password;  /* "": none */
	struct redis_tls_config *tls; /* NULL: plain */
	const char *name;             /* that the certificate may be for, beside the host's own */
	uint64_t silence_ns;          /* how long a server may say nothing */
};

struct redis_facts {
	bool is_cluster;
	bool evicts; /* takes out keys when its memory is full */
	bool has_replicas;
	char sha[N_REDIS_SCRIPTS][41];
};

struct redis_conn;

/* Connects, says who we are, has the server learn the scripts. err names the server as `text`. */
int redis_conn_open(const struct redis_address *to, const struct redis_login *login, const char *text,
		    struct redis_conn **ret, struct redis_facts *ret_facts, struct error *err);
void redis_conn_close(struct redis_conn *c);

/* What goes out next, after redis_conn_begin(). A failure is told by redis_conn_step(). */
void redis_conn_begin(struct redis_conn *c);
void redis_conn_add(struct redis_conn *c, const void *command, size_t bytes);
void redis_conn_add_text(struct redis_conn *c, size_t n, const char *const *args);
size_t redis_conn_n(const struct redis_conn *c);

/* 1: all replies are there; 0: poll for *ret until then, and call again; -ETIMEDOUT: silent for too
 * long; -ECONNRESET, -EPROTO, ... */
int redis_conn_step(struct redis_conn *c, struct pollfd *ret, uint64_t *ret_until_ns);
/* Reply i, if it is there. */
redisReply *redis_conn_take(struct redis_conn *c, size_t i); /* the caller's */
const redisReply *redis_conn_reply(const struct redis_conn *c, size_t i);
/* Sends what was added and waits for all replies. 0 or as redis_conn_step(). */
int redis_conn_run(struct redis_conn *c);
