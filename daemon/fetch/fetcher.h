/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads chunks with processes of the client's own user (docs/reference/protocol.md, "Fetchers"), instead of
 * reader.h. These processes have the rights, credentials and network that a bucket requires; the daemon has
 * none of these. They are trusted as little as any process that opens the dataset. Their data lands in memory
 * that they share with the daemon, is copied from there, and is verified in the copy.
 *
 * A dataset has as many fetchers as its user's jobs brought. A chunk is read in pieces, each by any free
 * fetcher. A fetcher that does not answer delays only the chunks that it was asked for, of that user's jobs.
 *
 * Loop thread only.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"
#include "daemon/node/pool.h"
#include "daemon/sandboxed/reader.h"

#define FETCHER_BYTES ((uint64_t)WIRE_LANDINGS * WIRE_LANDING_BYTES)

struct fetcher;
struct fetch;

/* The fetchers of one dataset. All zeroes: none. */
struct fetchers {
	struct fetcher *first;
	struct fetch *fetches, **last; /* fetches with pieces left to ask for */
};

/* Makes a fetcher that is asked over this socket, which must stay open until fetcher_end(). Returns 0 or a
 * negative errno. */
int fetcher_new(struct fetchers *list, struct pool *pool, int socket, struct fetcher **ret);
/* Returns the descriptor of its landing memory, for the process to map. */
int fetcher_memory(const struct fetcher *f);
/* Takes an answer. Returns 0, or -EPROTO if it answers no request. */
int fetcher_answer(struct fetcher *f, const struct wire_fetched *answer);
/* Ends a fetcher whose process has exited: its requests fail. Accepts NULL. */
void fetcher_end(struct fetcher *f);

/* As readers_submit(), with the object, size and known stamp in job->order. dev: device for the stamp. */
int fetchers_submit(struct fetchers *list, struct pool *pool, struct pool_lane *lane, struct reader_job *job,
		    uint64_t dev, int memory_fd);
