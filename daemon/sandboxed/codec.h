/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Decodes samples by a recipe, in sandboxed processes (fork_server.h) that each serve one session. Images are
 * bytes that users bring, and decoders are large. If one crashes, hangs or is taken over, the damage is
 * limited to a process that can only compute, read the chunks of its batch, and write batches of that session
 * (lib/sandbox.h). The process is replaced, and the error names the sample.
 *
 * A worker thread of the daemon hands over a batch and waits for it, so lanes, limits and turns of the pool
 * apply to this work as to any other. A process that has not answered by the end of its turn is stopped until
 * its next turn, if others have work for the worker (pool_pause()). There are as many processes as threads
 * that wait at one time or are paused. The processes end with the session.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"
#include "client/ring.h"
#include "dataset/chunk.h"
#include "image/recipe.h"
#include "lib/error.h"
#include "fork_server.h"
#include "daemon/node/pool.h"

struct codecs;

struct codec_segment {
	int fd; /* descriptor for reading only */
	uint64_t bytes;
};

#define CODEC_MAX_SEGMENTS 256
/* Maximum heap of an idle process; a process that holds more is ended. At work the limit is half a
 * gigabyte. */
#define CODEC_IDLE_BYTES (UINT64_C(16) << 20)

struct codec_work {
	struct pool *pool;      /* pool of the calling worker; NULL: the call waits as long as it takes */
	struct pool_task *task; /* the calling worker's task, a long-running one */
	uint64_t epoch;
	uint32_t slot;       /* number of the batch buffer */
	uint32_t first, end; /* items of the slot to decode: [first, end) */
	const struct codec_segment *segments;
	uint32_t n_segments; /* at most CODEC_MAX_SEGMENTS, including one for `grant` */
	/* Memory for new decoded copies (cache/decoded.h), from grant_offset on. The descriptor is
	 * writable. {.fd = -1}: none. */
	struct codec_segment grant;
	uint32_t grant_offset;
	uint32_t *made_bytes; /* size of the decoded copy made of each item, from `first` on; 0: none. NULL:
				 not needed */
};

#define CODEC_DECODED_ALIGN 64u /* alignment of decoded copies, in bytes */

/* How a sample was produced; the CPU cost is counted per way. */
enum codec_way {
	CODEC_FRESH,        /* decoded, because no decoded copy existed that could serve it */
	CODEC_EXCLUDED,     /* decoded, because no decoded copy could serve it, not even a new one */
	CODEC_FROM_DECODED, /* taken out of its decoded copy */
	CODEC_MADE_DECODED, /* decoded, and a decoded copy was made */
	CODEC_OUT_OF_IT, /* the part of CODEC_MADE_DECODED after the copy was made: the sample's cost from now
			    on */
	CODEC_N_WAYS,
};

struct codec_cost {
	uint64_t n, cpu_ns;
};

/* The prospective benefit of decoded copies. n: number of samples; n_served: samples served by their
 * decoded copy, existing or possible; bytes: size of the decoded copies of all n. */
struct codec_prospect {
	uint64_t n, n_served, bytes;
};

struct codec_result {
	uint64_t cpu_ns; /* CPU time of the processes, as the daemon measures it: they cannot forge it */
	struct codec_cost ways[CODEC_N_WAYS]; /* costs that the processes report; used only for tuning,
						 because a process may lie */
	struct codec_prospect prospect;       /* likewise */
	bool full;     /* decoding stopped: a decoded copy did not fit behind the others, but would fit in an
			  empty extent */
	uint32_t next; /* first item that is not done: time ran out, and others get a turn */
	uint32_t n_damaged;  /* samples that could not be decoded, including one that failed the call */
	uint32_t n_replaced; /* processes that were killed, or exited, before they were done */
	uint32_t item;       /* first damaged item, or the one at which decoding stopped */
	int sandbox;         /* 0, or the negative errno that kept the process out of a sandbox */
	struct error error;  /* error of the item */
};

/* Fixed parameters of the processes. All pointers and descriptors are borrowed until codecs_free(). */
struct codecs_setup {
	const struct fork_server *fork_server;
	const struct recipe *recipe;
	int plugin_fd; /* file of the recipe's codec (plugin.h), or -EBADF */
	enum chunk_layout sample_layout;
	struct columns columns; /* of this layout, if it has any; not kept */
	const char *field;      /* field of the samples that is decoded; "": whole samples */
	uint64_t seed;
	const struct ring_layout *layout; /* layout of the session */
	uint32_t n_slots, batch;
	uint8_t *slots;    /* memory of its batch buffers */
	int slots_fd;      /* descriptor of `slots`, for writing */
	uint32_t max_idle; /* maximum number of idle processes */
};

/* Creates the codecs of a session. -ENOMEM; -ENOENT: the layout has columns, but not one of the field's name;
 * -EBADMSG: the columns are damaged. */
int codecs_new(const struct codecs_setup *setup, struct codecs **ret);

/*
 * Decodes samples of a batch for about 50 ms. For each item in the slot, `location` is the number of its
 * segment (from 1) << 32 | offset, `bytes` its length and `sample` its number. Its label locates its decoded
 * copy in the same way, or is 0. When an item is done, its `location` is 0, and so is `bytes` if it is
 * damaged. Any thread; blocks. -EBADMSG: a sample is damaged, or crashes the process that decodes it, and the
 * recipe does not skip damaged samples; -ETIMEDOUT: a sample takes too long; -ECANCELED; other errors: no
 * process could be started. result->error says why, without the sample's name.
 */
int codecs_decode(struct codecs *c, const struct codec_work *work, struct codec_result *result);

/* Cancels current and future calls of codecs_decode(): each returns -ECANCELED at its next turn. */
void codecs_cancel(struct codecs *c);
/* Kills the processes and frees c. No thread may be in codecs_decode(). Accepts NULL. */
void codecs_free(struct codecs *c);

/* Runs the helper, which decodes until the end of the socket. Returns its exit status. */
int codec_run(int fd);
