/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Chunks in a bucket, and samples in objects of a bucket. */

#include "dataset/external.h"
#include "dataset/store.h"
#include "s3/bucket.h"

/* The store for PREFIX/chunks in a bucket, which is borrowed. */
struct store_s3 {
	struct store store;
	struct bucket *bucket;
};
extern const struct store_ops store_s3_ops;

/* The sources of external chunks (dataset/external.h) that are objects of a bucket. */
extern const struct external_ops source_s3_ops;
