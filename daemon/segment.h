/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared memory that the daemon alone writes: a memfd that was mapped here and then sealed, so that whoever
 * gets the descriptor can map it read-only (or privately) and can neither write, shrink nor grow it.
 */

#include <stdbool.h>
#include <stdint.h>

struct shared_memory {
	int fd;
	uint8_t *data;
	uint64_t bytes;
};

#define SHARED_MEMORY_INIT ((struct shared_memory){.fd = -1})

/* writable_by_client: the control area of a session, sealed in size only. */
int shared_memory_new(const char *name, uint64_t bytes, bool writable_by_client, struct shared_memory *ret);
void shared_memory_free(struct shared_memory *m);

/* A sealed, immutable copy of a file: what is served cannot be changed or truncated under our feet. The
 * result is a descriptor with nothing mapped. */
int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd);
