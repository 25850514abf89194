/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Decompresses blocks of chunks, for samples that are read past the daemon. libdiesel depends on libc only,
 * so libzstd is loaded when the first such block is read. */

#include "dataset/blocks.h"

/* Implements chunk_decode. -ENOSYS: libzstd.so.1 is missing. */
int zstd_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes);
