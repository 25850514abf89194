/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Translates a server's error for the user, and tells whether it is temporary. */

#include <stdbool.h>

#include <hiredis/hiredis.h>

#include "lib/error.h"

/* Returns true if the error begins with this word, or stopped one of our scripts with it. */
bool redis_refusal_is(const redisReply *error, const char *word);
/* Fills err with one line, and returns the code: -ENOSPC (out of memory), -EACCES, -EBADMSG (wrong type, keys
 * lost), -EBUSY (another writer), -EEXIST, -EROFS, -EIO; -EAGAIN: the server will
 * soon accept the command, because it loads its data, or the cluster elects a master or moves a slot. */
int redis_refusal(const redisReply *error, const char *text, struct error *err);
