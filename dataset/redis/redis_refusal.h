/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a server's error means to the user, and whether it goes away by itself. */

#include <stdbool.h>

#include <hiredis/hiredis.h>

#include "lib/error.h"

/* Whether it begins with this word, or a script of ours was stopped by it. */
bool redis_refusal_is(const redisReply *error, const char *word);
/* The server is about to be able to: it loads its data, or the cluster elects, or moves a slot. */
bool redis_refusal_passes(const redisReply *error);
/* Fills err with one line, and returns the code: -ENOSPC (out of memory), -EACCES, -EBADMSG (wrong type, keys
 * lost), -EBUSY (another writer), -EEXIST, -EROFS, -EAGAIN, -EIO. */
int redis_refusal(const redisReply *error, const char *text, struct error *err);
