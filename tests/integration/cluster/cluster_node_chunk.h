/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Chunks whose bytes follow from their ids: the number, and the length. */

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset/chunk_id.h"

static inline struct chunk_id chunk_of(uint64_t number, uint64_t bytes)
{
	struct chunk_id id;

	memcpy(id.bytes, &number, 8);
	memcpy(id.bytes + 8, &bytes, 8);
	return id;
}

static inline void chunk_parse(const struct chunk_id *id, uint64_t *ret_number, uint64_t *ret_bytes)
{
	memcpy(ret_number, id->bytes, 8);
	memcpy(ret_bytes, id->bytes + 8, 8);
}

static inline int chunk_memory(uint64_t bytes)
{
	int fd = memfd_create("chunk", MFD_CLOEXEC);

	return fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 ? fd : -1;
}

static inline uint8_t *chunk_bytes(uint64_t number, uint64_t bytes)
{
	uint64_t *words = malloc(bytes + 8);

	for (uint64_t i = 0; i < bytes / 8 + 1; i++)
		words[i] = (number + 1) * 0x9e3779b97f4a7c15 + i * i;
	return (uint8_t *)words;
}

static inline void chunk_fill(int fd, uint64_t number, uint64_t bytes)
{
	uint8_t *data = chunk_bytes(number, bytes);

	for (uint64_t at = 0; at < bytes;) {
		ssize_t n = pwrite(fd, data + at, bytes - at, (off_t)at);

		if (n <= 0)
			abort();
		at += (uint64_t)n;
	}
	free(data);
}

static inline bool chunk_is(int fd, uint64_t number, uint64_t bytes)
{
	uint8_t *data = chunk_bytes(number, bytes), *is = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	bool equal = is != MAP_FAILED && memcmp(data, is, bytes) == 0;

	if (is != MAP_FAILED)
		munmap(is, bytes);
	free(data);
	return equal;
}
