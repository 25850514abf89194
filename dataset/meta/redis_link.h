/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A connection to one Redis server. Commands go out together and their replies come back together. A
 * connection that breaks is made anew, and all commands of the batch are sent again: so each of them has to
 * be such that it does the same when it is done twice. Nothing waits without end. Not thread-safe.
 */

#include <stddef.h>

#include <hiredis/hiredis.h>

#include "redis_url.h"

enum redis_script { SCRIPT_PUT, SCRIPT_SWEEP, SCRIPT_STATE, N_REDIS_SCRIPTS };

struct redis_link;

int redis_link_open(const struct redis_url *url, struct redis_link **ret, struct error *err);
void redis_link_close(struct redis_link *l);
const char *redis_link_text(const struct redis_link *l);

/* Adds a command to the batch. A failure is told by redis_link_run(). */
void redis_link_add(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes);
void redis_link_add_text(struct redis_link *l, size_t n, const char *const *args);
/* EVALSHA with one key; args are those after it. */
void redis_link_add_script(struct redis_link *l, enum redis_script script, const char *key, size_t n,
			   const char *const *args, const size_t *sizes);
size_t redis_link_n(const struct redis_link *l);
size_t redis_link_bytes(const struct redis_link *l);
/* Sends the batch; then redis_link_reply(i) is the reply of its command i, until the next one is begun. An
 * error as a reply fails all: -ENOSPC (out of memory), -EACCES, -EBADMSG (wrong type, keys lost), -EBUSY
 * (another writer), -EIO, -ETIMEDOUT. */
int redis_link_run(struct redis_link *l, struct error *err);
const redisReply *redis_link_reply(const struct redis_link *l, size_t i);
