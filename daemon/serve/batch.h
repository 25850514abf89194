/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One batch on its way to a client: which samples, in which chunks, and the work of writing it into a frame
 * of shared memory.
 */

#include "daemon/cache/cache.h"
#include "client/ring.h"
#include "daemon/apart/codec.h"
#include "image/recipe.h"

struct form_extent;
struct frame_batch;
struct forms;

/* What decoding a part of a batch came to. */
struct batch_decoded {
	struct decode_counters counted;
	int sandbox; /* of codec_result */
};

struct batch_item {
	const uint8_t *source; /* set by batch_pin(): its chunk is pinned from then on */
	uint64_t sample;
	uint64_t location; /* segment << 32 | offset; before batch_pin(), only the offset */
	uint32_t chunk;
	uint32_t bytes;
	int32_t label;
	struct form_extent *form; /* where its decoded form lies, pinned; NULL: it has none */
	uint32_t form_offset;
	uint32_t made_bytes; /* of the form that was made of it in this slice, and is not entered yet */
};

struct batch {
	uint64_t epoch, index;
	struct batch_item *items;
	uint32_t n_items;
	uint32_t *chunks; /* each chunk once */
	uint32_t n_chunks;
	uint64_t bytes; /* of the samples */
	bool pinned;
	int status; /* negative: `error` goes to the client instead of samples */
	char error[768];
	/* Where samples are decoded: */
	uint32_t n_decoded; /* items that are done */
	uint32_t n_damaged; /* that could not be; the batch goes on without them */
	char damage[768];   /* what is wrong with the first one, and its name; "" if there is none */
	struct pool *pool;  /* whose worker decodes it, in this task */
	struct pool_task *task;
	/* Decoded forms: */
	struct form_extent *grant; /* what the slice under way may fill with forms; NULL: nothing */
	uint32_t *made_bytes;      /* of its items */
	uint32_t n_all;            /* items, those included that are left out as damaged */
	bool grant_full;
	struct codec_cost ways[CODEC_N_WAYS]; /* what the slice took */
	struct codec_prospect prospect;
};

/* Turns the batch into an error that says why, and which batch. */
void batch_fail(struct batch *b, int status, const char *why);

/* Allocates room for `batch` items out of n_chunks chunks. */
int batch_init(struct batch *b, uint32_t batch, uint64_t n_chunks);
void batch_free(struct batch *b);
/* Heap bytes that batch_init() takes. */
uint64_t batch_bytes(uint32_t batch, uint64_t n_chunks);

/*
 * Fills the batch with these samples. stamps has a word for each chunk; stamp is a value that none of them
 * has. A sample that cannot be served (unknown encoding, outside its chunk) makes status negative.
 */
void batch_set_samples(struct batch *b, const struct cached_dataset *d, const uint64_t *samples, uint32_t n,
		       uint32_t *stamps, uint32_t stamp);

/* What a batch waits for: of several things, the last of these. */
enum batch_wait {
	BATCH_READY,   /* all chunks are in memory, or the batch is an error by now */
	BATCH_VERIFY,  /* all are read, one is being verified */
	BATCH_STAGING, /* a chunk is to come from the staging disk */
	BATCH_PEERS,   /* from another node */
	BATCH_FETCH,   /* a chunk is not read yet */
};

/* What the batch waits for. Turns the batch into an error if one of its chunks is quarantined. now_ns: chunks
 * whose time to be retried has come are retried. */
enum batch_wait batch_check(struct batch *b, struct cached_dataset *d, uint64_t now_ns);

/* Pins the chunks, which must all be ready, and resolves the items' places. */
void batch_pin(struct batch *b, struct cache *c, struct cached_dataset *d);
void batch_unpin(struct batch *b, struct cached_dataset *d);

/* Writes the frame. item_bytes 0: views. Worker thread. */
void batch_write(const struct batch *b, uint8_t *frame, const struct ring_layout *layout,
		 uint32_t item_bytes);

/* Where a batch is decoded, and how. memory: of the frame with this number. */
struct batch_decoder {
	const struct cached_dataset *dataset;
	struct codecs *codecs;
	const struct recipe *recipe;
	const struct ring_layout *layout;
	uint32_t frame;
	uint8_t *memory;
};

/*
 * Fills the frame with decoded samples, for some 50 ms: it is done when n_decoded is n_items. Damaged samples
 * make the batch an error, or are left out (n_items gets less) or all zeros, as the recipe says. *ret: what
 * was done in this time. Worker thread.
 */
void batch_decode(struct batch *b, const struct batch_decoder *how, struct batch_decoded *ret);

/* The batch is the one that a frame holds: the same samples, decoded by the same recipe, without an error. */
void batch_adopt(struct batch *b, const struct frame_batch *from);
/* Fills a frame with a batch that was adopted from another of this layout. Worker thread. */
void batch_copy(const struct frame_batch *from, uint8_t *frame, const uint8_t *from_frame,
		const struct ring_layout *layout, const struct recipe *recipe);
/*
 * Loop thread: around each slice. First the forms of the batch's samples are looked up, once,
 * and pinned; then each slice gets memory for forms, and what it made is entered in the index. forms NULL:
 * nothing is done. batch_forms_unpin() when the batch is laid out.
 */
void batch_forms_find(struct batch *b, const struct forms *forms);
void batch_forms_grant(struct batch *b, struct cache *c, struct forms *forms);
void batch_forms_enter(struct batch *b, struct cache *c);
void batch_forms_unpin(struct batch *b, struct cache *c);
