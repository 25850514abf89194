/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shape of a dataset: how long its samples are, and what of its chunks no sample needs any more.
 *
 * A hole is what a chunk's file would be shorter by without its deleted and replaced samples, in whole blocks
 * of 4096 bytes. It follows from the snapshot alone: no chunk is read.
 */

#include "dataset/meta.h"
#include "dataset/snapshot.h"

struct ctl_verb;

#define SHAPE_SIZES 32 /* a sample has at most 1 GiB */

struct shape {
	uint64_t n_samples[SHAPE_SIZES]; /* [0]: empty; [i]: of 2^(i-1) bytes and more, but less than 2^i */
	uint64_t bytes[SHAPE_SIZES];
	uint64_t n_holes, hole_bytes; /* chunks that have one */
	bool knows_rest;              /* the metadata is there: the rest is known */
	uint64_t n_rest, rest_bytes;  /* chunks with no sample, which say what is deleted, or held what was */
	uint64_t oldest;              /* version that can still be read; 0: not known */
};

/* meta may be NULL: then the fields that knows_rest is about, and `oldest`, are not known. */
void shape_collect(const struct snapshot *s, struct meta *meta, struct shape *ret);

void shape_print(const struct ctl_verb *verb, const struct shape *shape, uint64_t version);
/* Members of a JSON object, with a comma behind them. */
void shape_print_json(const struct shape *shape);
