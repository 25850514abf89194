/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "dataset/store.h"
#include "s3/bucket.h"

/* Opens the engine for PREFIX/chunks in a bucket, which still belongs to the caller. -ENOMEM. */
int store_s3_open(struct bucket *bucket, struct store **ret, struct error *err);
