/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared memory that the daemon alone writes: memfds that are mapped here, and that whoever gets a descriptor
 * can map read-only (or privately) and can neither write, shrink nor grow.
 *
 * For good (SHARED_SEALED) that is a seal against all future writers. Chunks and batches come and go, and
 * their memory must come back to the system even while clients still map it: the seal would forbid that too
 * (a hole is a write). So these (SHARED_LENT) are handed out as descriptors that were opened for reading
 * only, of a file that nobody but its owner may open; whoever could open it for writing, root and the
 * daemon's own user, could write into the daemon anyway.
 */

#include <stdbool.h>
#include <stdint.h>

struct shared_memory {
	int fd;
	uint8_t *data;
	uint64_t bytes;
};

#define SHARED_MEMORY_INIT ((struct shared_memory){.fd = -1})

enum shared_kind {
	SHARED_CONTROL, /* of a session: the client writes too, it cannot change the size */
	SHARED_SEALED,
	SHARED_LENT, /* by shared_memory_reader(), and taken back by shared_memory_discard() */
};

/* Checks that memory that came from outside is what an earlier process of ours made with SHARED_LENT: of this
 * user, that nobody else may open, of this size and kept from changing it. 0, -EPERM or another errno. */
int shared_memory_check(int fd, uint64_t bytes);
/* Maps it, if it is: takes the descriptor over then. */
int shared_memory_take(int fd, uint64_t bytes, struct shared_memory *ret);

int shared_memory_new(const char *name, uint64_t bytes, enum shared_kind kind, struct shared_memory *ret);
void shared_memory_free(struct shared_memory *m);

/* A descriptor for a client, to read only, of such memory or of a copy (below); the caller closes it. */
int shared_memory_reader(int fd, int *ret_fd);
/* Gives the pages of what was lent back to the system, also those that a client maps (it would read zeros),
 * and frees. Takes about a millisecond for some MiB; any thread. */
void shared_memory_discard(struct shared_memory *m);

/* A sealed, immutable copy of a file: what is served cannot be changed or truncated under our feet. The
 * result is a descriptor for reading, the only one there is, with nothing mapped. */
int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd);
/* Returns true if it is such a copy. */
bool shared_memory_is_sealed(int fd);
/* Returns true if a client still has a descriptor of it, or maps what it got. */
bool shared_memory_copy_is_held(int fd);
