/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Hash functions for tables in memory, and for numbers that must be the same in each run. Data
 * on disk is checked with XXH3 (dataset/checksum.h). */

#include <stddef.h>
#include <stdint.h>

/* Initial value for hash_bytes(). */
#define HASH_START UINT64_C(0xcbf29ce484222325)

/* Returns the FNV-1a hash of the bytes, continued from `hash`. The last bytes affect its low bits only
 * weakly: a table of 2^k slots must mix in the high bits (hash ^ hash >> 32). */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
	const uint8_t *bytes = (const uint8_t *)data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}

/* Returns a hash of the number. Its high bits are well distributed. */
static inline uint64_t hash_number(uint64_t number)
{
	return number * UINT64_C(0x9e3779b97f4a7c15);
}

/* Returns the next number of SplitMix64. */
static inline uint64_t splitmix64(uint64_t *state)
{
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
