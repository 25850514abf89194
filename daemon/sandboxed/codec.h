/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decoding samples by a recipe, in processes of their own (fork_server.h) that each serve one session. Images
 * are bytes that users bring, and decoders are large: what crashes, hangs or is taken over is a process that
 * can compute, read the chunks of its batch, and write batches of that session, and nothing else
 * (lib/sandbox.h). It is replaced; the sample that it was at is named.
 *
 * A worker thread of the daemon hands over a batch and waits for it: so lanes, limits and turns of the pool
 * hold for this work as for any other. A process that has not answered by the end of its turn is stopped
 * until its next one, if others have work for the worker (pool_pause()). There are as many processes as
 * threads that wait at one time, or are paused; they end with the session.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/ring.h"
#include "image/recipe.h"
#include "lib/error.h"
#include "fork_server.h"
#include "daemon/node/pool.h"

struct codecs;

struct codec_segment {
	int fd; /* for reading only */
	uint64_t bytes;
};

#define CODEC_MAX_SEGMENTS 256
/* What an idle process may hold; one that holds more is ended. At work, half a gigabyte. */
#define CODEC_IDLE_BYTES (UINT64_C(16) << 20)

struct codec_work {
	struct pool *pool;      /* whose worker this is; NULL: it waits as long as it takes */
	struct pool_task *task; /* a long one */
	uint64_t epoch;
	uint32_t slot;       /* the number of its frame */
	uint32_t first, end; /* items of the slot */
	const struct codec_segment *segments;
	uint32_t n_segments; /* at most CODEC_MAX_SEGMENTS; what `grant` is one of counts */
	/* Where decoded copies of samples that have none may be put (cache/decoded.h): behind grant_offset of
	 * this memory, whose descriptor is for writing. {.fd = -1}: nowhere. */
	struct codec_segment grant;
	uint32_t grant_offset;
	uint32_t *made_bytes; /* of the decoded copy that was made of each item from `first` on; 0: none.
				 NULL: not asked */
};

#define CODEC_DECODED_ALIGN 64u /* bytes: where decoded copies begin */

/* How a sample came to be, for what that costs. */
enum codec_way {
	CODEC_FRESH,        /* decoded, though it could come out of a decoded copy, if there were one */
	CODEC_EXCLUDED,     /* decoded, since it comes out of no decoded copy, whether there is one or not */
	CODEC_FROM_DECODED, /* out of its decoded copy */
	CODEC_MADE_DECODED, /* decoded, and a decoded copy made of it... */
	CODEC_OUT_OF_IT,    /* ... of which this is the part that comes after: what it costs from now on */
	CODEC_N_WAYS,
};

struct codec_cost {
	uint64_t n, cpu_ns;
};

/* What decoded copies are good for, of samples that have one or not: how many come out of the decoded copy
 * that they have or could have, and what the decoded copies of all of them take. */
struct codec_prospect {
	uint64_t n, n_served, bytes;
};

struct codec_result {
	uint64_t cpu_ns; /* that processes took, by the daemon's clock: one that was taken over cannot lie */
	struct codec_cost ways[CODEC_N_WAYS]; /* as the process says: for tuning alone */
	struct codec_prospect prospect;       /* the same */
	bool full; /* it stopped, since a decoded copy did not fit behind the others, but would fit an empty
		      extent */
	uint32_t next;       /* the first item that is not done yet: time was up, so that others get a turn */
	uint32_t n_damaged;  /* samples that could not be decoded, the one that status is about included */
	uint32_t n_replaced; /* processes that were ended, or ended by themselves, before they were done */
	uint32_t item;       /* the first damaged one, or where it stopped */
	int sandbox;         /* 0, or why the process works without one: a negative errno */
	struct error error;  /* what is wrong with the item */
};

/* The work of the processes. All that it points at is borrowed until codecs_free(). */
struct codecs_setup {
	const struct fork_server *fork_server;
	const struct recipe *recipe;
	int plugin_fd; /* of the file of the recipe's codec (plugin.h), or -EBADF */
	uint64_t seed;
	const struct ring_layout *layout; /* of the session */
	uint32_t n_slots, batch;
	uint8_t *slots;    /* the memory of its frames */
	int slots_fd;      /* of that, for writing */
	uint32_t max_idle; /* how many processes are kept */
};

/* -ENOMEM. */
int codecs_new(const struct codecs_setup *setup, struct codecs **ret);

/*
 * Decodes samples of a batch for some 50 ms. Of each item in the slot, `location` is the number of its
 * segment, from 1, << 32 | offset, `bytes` its length, `sample` its number; and its label is where its
 * decoded copy lies, in the same way, or 0. When it is done, `location` is 0, and so is `bytes` if it is
 * damaged. Any thread; waits. -EBADMSG: a sample is damaged, or ends the process that is to decode it, and
 * the recipe does not go on without it; -ETIMEDOUT: it takes too long; or no process can be had.
 * result->error says why, without the sample's name.
 */
int codecs_decode(struct codecs *c, const struct codec_work *work, struct codec_result *result);

/* Nobody wants what is being decoded, nor what is to be: it ends at its next turn, with -ECANCELED. */
void codecs_cancel(struct codecs *c);
/* Ends the processes. No thread may be in codecs_decode(). Accepts NULL. */
void codecs_free(struct codecs *c);

/* The helper: decodes until the end of the socket. Returns its exit status. */
int codec_run(int fd);
