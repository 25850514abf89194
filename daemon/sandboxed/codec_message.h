/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Between codec.c and codec_run.c. The daemon sends CODEC_BEGIN with the memory of the session's slots, and
 * the plug-in's file where the recipe has one, gets CODEC_STARTED with a pidfd and its number, and
 * CODEC_READY, and then sends, again and again, chunk segments, one or two in a message, and an order, which
 * is answered when it is done, or time is up.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/ring.h"
#include "codec.h"
#include "image/recipe.h"
#include "lib/error.h"

enum codec_type {
	CODEC_BEGIN = 1,
	CODEC_READY = 2,
	CODEC_SEGMENTS = 3, /* of the order to come, with their descriptors */
	CODEC_ORDER = 4,
	CODEC_DONE = 5,
	CODEC_STARTED = 6,
	CODEC_LATE = 7, /* instead of CODEC_DONE: a sample takes too long. The process ends */
};

struct codec_begin {
	struct recipe recipe;
	uint64_t seed;
	struct ring_layout layout;
	uint32_t n_slots;
	uint32_t batch; /* the most items that a slot has */
};

struct codec_segments {
	uint64_t bytes[2];
	bool grant; /* one alone, after all others, to be mapped for writing */
};

/* What a decoded copy begins with: of the image that it was made from, and how that lies behind this (struct
 * image_whole). Written and read by decoders alone, which do not believe each other. */
struct codec_decoded {
	uint32_t width, height;
	uint32_t kind; /* enum image_kind */
	uint32_t is_planes;
	uint32_t h, v;
	uint32_t by;
	uint32_t reserved[9];
};

_Static_assert(sizeof(struct codec_decoded) == 64, "what follows is aligned");

/* The items of the slot say where each sample lies: location is its segment's number in the order, from 1, <<
 * 32 | offset; their labels where its decoded copy lies, or 0. An item that is done has location 0, and bytes
 * 0 if it is damaged; its label is the bytes of the decoded copy that was made of it, or 0. Decoded copies
 * are written one behind the other, each from the next multiple of CODEC_DECODED_ALIGN on. */
struct codec_order {
	uint64_t epoch;
	uint32_t slot;
	uint32_t first, end;   /* items */
	uint32_t grant_offset; /* in the grant, if there is one */
};

/* It stops at the end of this time, so that others get a turn, before its turn ends by the daemon's clock. */
#define CODEC_SLICE_NS     UINT64_C(40000000)
#define CODEC_SAMPLE_CPU_S 10 /* then the kernel tells it that its sample takes too long */

struct codec_done {
	struct codec_cost ways[CODEC_N_WAYS];
	struct codec_prospect prospect;
	bool full;
	int32_t status; /* RECIPE_DAMAGE_ERROR: that of the sample that ended it; else 0 */
	uint32_t next;  /* the first item that is not done yet */
	uint32_t item;  /* the first damaged one... */
	uint32_t n_damaged;
	bool is_large;      /* it holds more memory than an idle one may */
	struct error error; /* ... and what is wrong with it */
};

struct codec_message {
	uint32_t type;
	int32_t
	    sandbox; /* CODEC_READY: 0, or why there is no sandbox; `done` has a plug-in's status and error */
	int32_t pid; /* CODEC_STARTED: its own */
	union {
		struct codec_begin begin;
		struct codec_segments segments;
		struct codec_order order;
		struct codec_done done;
	};
};
