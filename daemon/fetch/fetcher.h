/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Chunks that processes of the client's own user read for the daemon (docs/reference/protocol.md,
 * "Fetchers"), in place of reader.h: they have what it takes to reach a bucket, rights, credentials and a
 * network, and the daemon has none of it. They are as little trusted as whoever opens the dataset: what they
 * deliver lands in memory that they share with the daemon, is copied from there, and verified in the copy.
 *
 * A dataset has as many fetchers as its user's jobs brought. A chunk is read in pieces, by whoever is free.
 * One that does not answer holds up the chunks that it was asked for, of that user's jobs alone.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"
#include "daemon/node/pool.h"
#include "daemon/apart/reader.h"

#define FETCHER_BYTES ((uint64_t)WIRE_LANDINGS * WIRE_LANDING_BYTES)

struct fetcher;
struct fetch;

/* Of one dataset. All zeroes: none. */
struct fetchers {
	struct fetcher *first;
	struct fetch *fetches, **last; /* that have pieces left to ask for */
};

/* A fetcher that is asked over this socket, which must stay open until fetcher_end(). */
int fetcher_new(struct fetchers *list, struct pool *pool, int socket, struct fetcher **ret);
/* The descriptor of its landing memory, for it to map. */
int fetcher_memory(const struct fetcher *f);
/* Takes an answer. -EPROTO: it is not to anything that was asked. */
int fetcher_answer(struct fetcher *f, const struct wire_fetched *answer);
/* It is gone: what it was asked for fails. Accepts NULL. */
void fetcher_end(struct fetcher *f);

/* As readers_submit(), with job->order's object, size and what is known. dev: for the stamp. */
int fetchers_submit(struct fetchers *list, struct pool *pool, struct pool_lane *lane, struct reader_job *job,
		    uint64_t dev, int memory_fd);
