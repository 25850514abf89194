/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A Redis server, or a Redis Cluster of which the URL names one node. Commands are sent together, in one
 * batch per node, and their replies come back together.
 *
 * Broken connections are reopened, moved slots are followed, and the replacement of a lost master is found.
 * Commands without a reply are then sent again. So commands must be idempotent, and the order of a batch's
 * commands must not matter. A batch that writes is complete when a replica has it, too, if the node has one:
 * a completed write is not lost when a replica takes over.
 *
 * No call waits longer than `patience_ns` without a reply. Not thread-safe.
 */

#include <stddef.h>

#include "redis_conn.h"
#include "redis_url.h"

struct redis_settings {
	struct redis_url url;
	struct redis_tls_files tls;
	uint64_t patience_ns;
};

struct redis_link;

int redis_link_open(const struct redis_settings *settings, struct redis_link **ret, struct error *err);
void redis_link_close(struct redis_link *l);
const char *redis_link_text(const struct redis_link *l);
/* Returns true if one of the servers contacted so far evicts keys when its memory is full. */
bool redis_link_evicts(const struct redis_link *l);

/* From now on a command that the server refuses fails only itself: its reply is the error. Temporary failures
 * are retried as before. After a failure of redis_link_run(), replies that arrived can be read, and others
 * are NULL. */
void redis_link_keep_errors(struct redis_link *l);

/* Adds a command to the batch: its key is args[1]. redis_link_run() reports failures. */
void redis_link_read(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes);
void redis_link_write(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes);
/* Adds an EVALSHA with one key; args are the arguments after the key. Counts as a write. */
void redis_link_script(struct redis_link *l, enum redis_script script, const char *key, size_t n,
		       const char *const *args, const size_t *sizes);
size_t redis_link_n(const struct redis_link *l);
size_t redis_link_bytes(const struct redis_link *l);
/* Sends the batch. Then redis_link_reply(i) is the reply of its command i, until the next batch is begun. An
 * error reply fails the batch, with the code of redis_refusal(); also -ETIMEDOUT, -ECONNREFUSED, -EPROTO, ...
 */
int redis_link_run(struct redis_link *l, struct error *err);
const redisReply *redis_link_reply(const struct redis_link *l, size_t i);
