/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One batch for a client: its samples, their chunks, and the work of writing the batch into a batch buffer
 * (shared memory).
 */

#include "daemon/cache/cache.h"
#include "client/ring.h"
#include "daemon/sandboxed/codec.h"
#include "image/recipe.h"

struct decoded_extent;
struct buffer_batch;
struct decoded_cache;

/* Result of decoding one slice of a batch. */
struct batch_decoded {
	struct decode_counters counted;
	int sandbox; /* copy of codec_result.sandbox */
};

struct batch_item {
	const uint8_t *source; /* set by batch_pin(): its chunk is pinned from then on */
	uint64_t sample;
	uint64_t location; /* segment << 32 | offset; before batch_pin(), only the offset */
	uint32_t chunk;
	uint32_t bytes;
	int32_t label;
	struct decoded_extent *decoded_copy; /* pinned extent with its decoded copy; NULL: no copy */
	uint32_t decoded_offset;
	uint32_t made_bytes; /* bytes of the copy made in this slice and not yet indexed */
};

struct batch {
	uint64_t epoch, index;
	struct batch_item *items;
	uint32_t n_items;
	uint32_t *chunks; /* chunks of the samples, each once */
	uint32_t n_chunks;
	uint64_t bytes; /* bytes of all samples */
	bool pinned;
	int status; /* negative: `error` goes to the client instead of samples */
	char error[768];
	/* Used if samples are decoded: */
	uint32_t n_decoded; /* items that are done */
	uint32_t n_damaged; /* items that could not be decoded; the batch continues without them */
	char damage[768];   /* error of the first damaged item, with its name; "": none */
	struct pool *pool;  /* a worker of this pool decodes the batch, in this task */
	struct pool_task *task;
	/* Decoded copies: */
	struct decoded_extent *grant; /* extent that the slice may fill; NULL: none */
	uint32_t *made_bytes;         /* bytes of the decoded copy of each item in the slice */
	uint32_t n_all;               /* items, including damaged ones that are left out */
	bool grant_full;
	struct codec_cost ways[CODEC_N_WAYS]; /* cost of the slice */
	struct codec_prospect prospect;
};

/* Turns the batch into an error. The message is `why` followed by the batch's index and epoch. */
void batch_fail(struct batch *b, int status, const char *why);

/* Allocates space for `batch` items from a dataset of n_chunks chunks. Returns 0 or -ENOMEM; call
 * batch_free() in both cases. */
int batch_init(struct batch *b, uint32_t batch, uint64_t n_chunks);
void batch_free(struct batch *b);
/* Returns the heap bytes that batch_init() allocates. */
uint64_t batch_bytes(uint32_t batch, uint64_t n_chunks);

/*
 * Sets the samples of the batch. stamps has one word per chunk of the dataset; none of them equals `stamp`
 * before the call. A sample that cannot be served (unknown encoding, outside its chunk) makes status
 * negative.
 */
void batch_set_samples(struct batch *b, const struct cached_dataset *d, const uint64_t *samples, uint32_t n,
		       uint32_t *stamps, uint32_t stamp);

/* Reason why a batch waits. Among several reasons, the one listed last here counts. */
enum batch_wait {
	BATCH_READY,   /* all chunks are in memory, or the batch has become an error */
	BATCH_VERIFY,  /* all chunks are read, at least one is being verified */
	BATCH_STAGING, /* a chunk is being read from the staging disk */
	BATCH_PEERS,   /* a chunk is being read from another node */
	BATCH_FETCH,   /* a chunk is not read yet, or is being read from storage */
};

/* Returns what the batch waits for. Retries a quarantined chunk if its retry time is reached at now_ns;
 * otherwise a quarantined chunk turns the batch into an error. */
enum batch_wait batch_check(struct batch *b, struct cached_dataset *d, uint64_t now_ns);
void batch_unpin(struct batch *b, struct cached_dataset *d);

/* Writes the buffer: item table, labels, and the samples, packed at item_bytes each. item_bytes 0: views, no
 * samples are copied. Writes the error's text instead if the batch is an error. Worker thread. */
void batch_write(const struct batch *b, uint8_t *buffer, const struct ring_layout *layout,
		 uint32_t item_bytes);

/* Describes how and into which buffer a batch is decoded. memory: start of the buffer with this number. */
struct batch_decoder {
	const struct cached_dataset *dataset;
	struct codecs *codecs;
	const struct recipe *recipe;
	bool has_views; /* a field is decoded, and clients read the others in chunks */
	const struct ring_layout *layout;
	uint32_t buffer;
	uint8_t *memory;
};

/*
 * Decodes samples into the buffer for about 50 ms. The batch is complete when n_decoded equals n_items.
 * Damaged samples turn the batch into an error, are left out (n_items shrinks) or become zeros, depending on
 * the recipe. *ret: result of this slice. Worker thread.
 */
void batch_decode(struct batch *b, const struct batch_decoder *how, struct batch_decoded *ret);
/* Copies an adopted batch from another buffer of the same layout. Worker thread. */
void batch_copy(const struct buffer_batch *from, uint8_t *buffer, const uint8_t *from_buffer,
		const struct ring_layout *layout, const struct recipe *recipe);
void batch_decoded_grant(struct batch *b, struct cache *c, struct decoded_cache *decoded_cache);
