/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "dataset/backend.h"

/* Removes the objects of a dataset in a bucket. Errors as backend_remove(). */
int backend_s3_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		      struct removal *ret, struct error *err);
