/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_refusal.h"

#include <errno.h>
#include <string.h>

#include "lib/text.h"

struct refusal_words {
	const char *begins;
	int code;
	const char *advice;
};

static const struct refusal_words known[] = {
    {"DIESELLOST", -EBADMSG, "keys of the dataset are missing or are not DIESEL's: run `dieselctl rebuild`"},
    {"DIESELBUSY", -EBUSY, "the metadata was changed by another dieselctl just now; try again"},
    {"DIESELOTHER", -EEXIST,
     "the prefix holds another dataset's metadata: choose another one, or remove its keys"},
    {"WRONGTYPE", -EBADMSG, "a key of the dataset has the wrong type: run `dieselctl rebuild`"},
    {"OOM", -ENOSPC, "the server has no memory left (maxmemory); nothing was changed"},
    {"NOAUTH", -EACCES, "the server needs a password: set DIESEL_REDIS to redis://USER:PASSWORD@HOST:PORT"},
    {"WRONGPASS", -EACCES, "the server refuses this user and password"},
    {"NOPERM", -EACCES, "the server does not let this user run a command, or reach these keys"},
    {"READONLY", -EROFS, "the server is a replica: give the URL of its master"},
    {"MISCONF", -EROFS, "the server cannot write to its disk, and accepts no changes"},
    {"NOREPLICAS", -EAGAIN, "the server has too few replicas (min-replicas-to-write)"},
    {"CLUSTERDOWN", -EAGAIN, "the Redis Cluster is down, or no node serves the slot of a key"},
    {"TRYAGAIN", -EAGAIN, "a slot is being moved to another node; try again"},
    {"LOADING", -EAGAIN, "the server is loading its data; try again later"},
    {"MASTERDOWN", -EAGAIN, "the server has lost its master"},
    {"BUSY", -EAGAIN, "the server is busy with a script; try again later"},
};

/* Servers up to version 6 report an error within a script as "ERR Error running script ...: @WORD ". */
bool redis_refusal_is(const redisReply *error, const char *word)
{
	size_t length = strlen(word);
	const char *at = error->str;

	if (!strncmp(at, "ERR ", 4))
		at = strstr(at, word);
	return at && !strncmp(at, word, length) && (at[length] == ' ' || at[length] == '\0');
}

int redis_refusal(const redisReply *error, const char *text, struct error *err)
{
	char said[200];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (redis_refusal_is(error, known[i].begins))
			return error_set(err, known[i].code, "%s: %s", text, known[i].advice);
	return error_set(err, -EIO, "%s: the server says: %s", text,
			 text_printable(said, sizeof(said), error->str, error->len));
}
