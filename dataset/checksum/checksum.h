/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XXH3-64 with seed 0, by libxxhash, whose header nobody else includes. Thread-safe. */

#include <stddef.h>
#include <stdint.h>

uint64_t checksum_xxh3(const void *data, size_t bytes);

/* As checksum_xxh3(), but takes the 8 bytes at gap_offset, the field that holds the result, as zeros. */
uint64_t checksum_xxh3_gap(const void *data, size_t bytes, size_t gap_offset);
