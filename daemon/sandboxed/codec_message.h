/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Messages between codec.c and codec_run.c. The daemon sends CODEC_BEGIN with the memory of the session's
 * slots and, if the recipe has a plug-in, its file. The process answers CODEC_STARTED with a pidfd and its
 * process id, then CODEC_READY. Then the daemon repeatedly sends chunk segments, one or two per message, and
 * an order. The process answers an order when it is done or its time is up.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"
#include "client/ring.h"
#include "codec.h"
#include "dataset/columns.h"
#include "image/recipe.h"
#include "lib/error.h"

enum codec_type {
	CODEC_BEGIN = 1,
	CODEC_READY = 2,
	CODEC_SEGMENTS = 3, /* segments of the next order, with their descriptors */
	CODEC_ORDER = 4,
	CODEC_DONE = 5,
	CODEC_STARTED = 6,
	CODEC_LATE = 7, /* instead of CODEC_DONE: a sample takes too long; the process exits */
};

struct codec_begin {
	struct recipe recipe;
	uint64_t seed;
	struct ring_layout layout;
	uint32_t n_slots;
	uint32_t batch;               /* maximum number of items in a slot */
	uint32_t sample_layout;       /* enum chunk_layout */
	struct column_place column;   /* where that field lies, in layouts that have columns */
	char field[WIRE_FIELD_BYTES]; /* field of the samples that is decoded; "": whole samples */
};

struct codec_segments {
	uint64_t bytes[2];
	bool grant; /* a single segment, sent after all others, to be mapped for writing */
};

/* Header of a decoded copy: describes the image that it was made from and the layout of the pixels that
 * follow (struct image_whole). Only decoder processes write and read it, and they do not trust each other. */
struct codec_decoded {
	uint32_t width, height;
	uint32_t kind; /* enum image_kind */
	uint32_t is_planes;
	uint32_t h, v;
	uint32_t by;
	uint32_t reserved[9];
};

_Static_assert(sizeof(struct codec_decoded) == 64, "the pixels after the header must be aligned");

/* An order to decode items of a slot. An item's location is the number of its segment in the order (from
 * 1) << 32 | offset; its label locates its decoded copy in the same way, or is 0. An item that is done has
 * location 0, and bytes 0 if it is damaged; its label is then the size of the decoded copy that was made
 * of it, or 0. Decoded copies are written one after the other, each at the next multiple of
 * CODEC_DECODED_ALIGN. */
struct codec_order {
	uint64_t epoch;
	uint32_t slot;
	uint32_t first, end;   /* items */
	uint32_t grant_offset; /* offset in the grant where decoded copies start, if there is a grant */
};

/* CPU time after which the process stops by itself, so that it ends its turn before the daemon's clock
 * does. */
#define CODEC_SLICE_NS     UINT64_C(40000000)
#define CODEC_SAMPLE_CPU_S 10 /* CPU time limit of one sample, in seconds; signalled by the kernel */

struct codec_done {
	struct codec_cost ways[CODEC_N_WAYS];
	struct codec_prospect prospect;
	bool full;
	int32_t status; /* with RECIPE_DAMAGE_ERROR: errno of the sample that ended the order; else 0 */
	uint32_t next;  /* first item that is not done yet */
	uint32_t item;  /* first damaged item */
	uint32_t n_damaged;
	bool is_large;      /* the process holds more memory than an idle process may */
	struct error error; /* error of the first damaged item */
};

struct codec_message {
	uint32_t type;
	int32_t sandbox; /* CODEC_READY: 0, or the -errno that ruled out a sandbox; `done` has the plug-in's
			    status and error */
	int32_t pid;     /* CODEC_STARTED: the process's own id */
	union {
		struct codec_begin begin;
		struct codec_segments segments;
		struct codec_order order;
		struct codec_done done;
	};
};
