/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Definitions shared by the files of the metadata store on a Redis server: meta_redis.c (the hash of the
 * committed state, reading and transactions) and meta_redis_open.c.
 */

#include "dataset/meta.h"
#include "redis_buckets.h"
#include "dataset/redis/redis_link.h"
#include "lib/container_of.h"

/* In the second format chunks may be compressed, which older programs cannot read. */
#define REDIS_FORMAT_PLAIN      "1"
#define REDIS_FORMAT_COMPRESSED "2"

#define REDIS_LOG_NAME 32
#define KEY_BYTES      (REDIS_URL_PART + 8)

/* DATASET/meta.redis: where a dataset's metadata is, if that is on a Redis server. No password is in it. */
struct redis_backend {
	struct redis_url url;
	char dataset[33]; /* hexadecimal random number, which is stored on the server, too */
	bool is_copied;   /* the file was written for another folder, whose metadata the server has */
};

struct redis_state {
	struct meta_info info;
	uint64_t dirty, committed, marks;
	char generation[17], scratch[17], garbage[17];
};

struct meta_redis {
	struct meta meta;
	struct redis_link *link;
	struct redis_backend place;
	char key[KEY_BYTES]; /* key of the state */
	char *file;
	enum meta_mode mode;
	struct redis_view read; /* view of the last lookup without a transaction */

	/* State of the transaction. */
	bool open, dirty, keeps_digests, is_compressed, must_clear;
	struct redis_state was;
	struct redis_view view;
	char scratch[17]; /* "" until meta_clear() */
	bool has_last;
	struct chunk_id last;
	struct meta_chunk last_chunk;
	struct redis_puts puts;
};

extern const struct meta_ops redis_meta_ops;

static inline struct meta_redis *redis_of(struct meta *m)
{
	return container_of(m, struct meta_redis, meta);
}

/* Asks for the state and returns it, in one step. */
int redis_state_read(struct meta_redis *s, struct redis_state *ret, struct error *err);
int redis_state_create(struct meta_redis *s, struct error *err);

void redis_meta_free(struct meta *m);

/* meta_redis_open.c */
int redis_random_hex(char *ret, size_t digits);
