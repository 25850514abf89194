/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* XXH3-64 with seed 0, by libxxhash. The one user of its header. Thread-safe. */

#include <stddef.h>
#include <stdint.h>

uint64_t checksum_xxh3(const void *data, size_t bytes);

/* As checksum_xxh3, with the 8 bytes at gap_offset taken as zeros: the field that holds the result. */
uint64_t checksum_xxh3_gap(const void *data, size_t bytes, size_t gap_offset);
