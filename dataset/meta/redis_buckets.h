/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Values in many versions, spread over hashes ("buckets") of a Redis server, so that keys, replies and
 * commands hardly grow with the dataset: PREFIX:GENERATION:0, :1, ... Paths and chunks have separate buckets.
 *
 * A value is one or two versions one after the other: the number of the writer (8 bytes, big endian), a
 * length (1 byte; 0: deleted) and the data. A reader takes the last version that is not above the committed
 * number, so everything that a writer wrote becomes visible at once, when that number is raised.
 *
 * The field "" of each bucket is its mark, with five numbers of 8 bytes, big endian: the lowest writer that
 * may write, and the writers of the previous and the newest state, each followed by the number of values that
 * are not deleted. The mark shows that a key was lost or evicted, and, when the whole bucket is read, that it
 * is incomplete.
 */

#include <stdbool.h>
#include <stdint.h>

#include "dataset/chunk/buffer.h"
#include "dataset/redis/redis_link.h"

enum redis_family { REDIS_PATHS, REDIS_CHUNKS, N_REDIS_FAMILIES };

struct redis_view {
	const char *prefix;
	char generation[17];
	uint64_t number; /* values of writers above this number are invisible */
};

#define REDIS_VALUE_MAX 255
#define REDIS_BUCKETS   1040 /* keys of a generation */

int redis_buckets_make(struct redis_link *l, const struct redis_view *v, struct error *err);
int redis_buckets_remove(struct redis_link *l, const struct redis_view *v, struct error *err);
/* Removes the values that the writer `dead` wrote, and keeps it from writing more. */
int redis_buckets_sweep(struct redis_link *l, const struct redis_view *v, uint64_t dead, struct error *err);
/* Totals of all marks of a view. */
struct redis_totals {
	uint64_t n[N_REDIS_FAMILIES]; /* values */
	uint64_t marks; /* XXH3-64 of all marks: differs if any bucket is not as it was written */
};

int redis_buckets_count(struct redis_link *l, const struct redis_view *v, struct redis_totals *ret,
			struct error *err);

/* Values on their way to the server. {0} is empty. */
struct redis_puts {
	struct buffer data;
	struct buffer list;
};

/* Adds a value. With 0 bytes, deletes the field. */
int redis_puts_add(struct redis_puts *p, enum redis_family family, const void *field, size_t field_bytes,
		   const void *data, size_t bytes);
/* Sends all values, as the writer of the view. Later values of a field replace earlier ones. */
int redis_puts_flush(struct redis_puts *p, struct redis_link *l, const struct redis_view *v,
		     struct error *err);
void redis_puts_free(struct redis_puts *p);

/* Adds the command whose reply redis_bucket_value() parses. */
void redis_bucket_ask(struct redis_link *l, const struct redis_view *v, enum redis_family family,
		      const void *field, size_t field_bytes);
/* Parses the reply to redis_bucket_ask(). *ret is borrowed from the link. -ENOENT; -ESTALE: the view is too
 * old; -EBADMSG. err is set for neither. */
int redis_bucket_value(const redisReply *reply, const struct redis_view *v, const unsigned char **ret,
		       size_t *ret_bytes);

/* Calls back for each value, in no particular order. Returns the callback's result if it is not 0. */
typedef int redis_value_callback(const void *field, size_t field_bytes, const unsigned char *data,
				 size_t bytes, void *context);
int redis_buckets_each(struct redis_link *l, const struct redis_view *v, enum redis_family family,
		       redis_value_callback *callback, void *context, struct error *err);
