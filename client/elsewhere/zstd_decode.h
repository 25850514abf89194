/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Blocks of compressed chunks, for samples that are read past the daemon. libdiesel needs libc alone, so
 * libzstd is looked for when the first such block is read. */

#include "dataset/blocks.h"

/* A chunk_decode; -ENOSYS: there is no libzstd.so.1. */
int zstd_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes);
