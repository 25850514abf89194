/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `pack --jpeg-restarts` does to a file, and `verify --repair` again: a pack_rewriter (dataset/pack.h).
 * Returns a code of enum jpeg_restarts, or -errno. */

#include "lib/error.h"

#include <stddef.h>

int ctl_add_restarts(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note);
