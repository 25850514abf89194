/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared memory that only the daemon writes: memfds that are mapped here. A client that gets a descriptor can
 * map it read-only (or privately), and can neither write, shrink nor grow it.
 *
 * For permanent contents (SHARED_SEALED) a seal refuses all future writers. The memory of old chunks and
 * batches must be returned to the system even while clients still map it. The seal would forbid that, too
 * (punching a hole is a write). So these (SHARED_MAPPABLE) are handed out as descriptors opened for reading
 * only, of a file that only its owner may open. Any user who could open it for writing, root or the daemon's
 * own user, could write into the daemon anyway. That is not so for root of a pod without a user namespace
 * where the daemon is uid 0: such pods must be refused (docs/explanation/security.md, Who administers).
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
	SHARED_CONTROL, /* a session's control memory: the client writes, too, but cannot change the size */
	SHARED_SEALED,
	SHARED_MAPPABLE, /* handed out by shared_memory_reader(), taken back by shared_memory_discard() */
};

/* Checks that this memory was made by an earlier daemon with SHARED_MAPPABLE: owned by this user, closed to
 * all others, and sealed at this size. Returns 0, -EPERM or another negative errno. */
int shared_memory_check(int fd, uint64_t bytes);
/* Checks memory as shared_memory_check() does, maps it, and takes ownership of the descriptor. On failure the
 * caller keeps the descriptor. */
int shared_memory_take(int fd, uint64_t bytes, struct shared_memory *ret);

int shared_memory_new(const char *name, uint64_t bytes, enum shared_kind kind, struct shared_memory *ret);
void shared_memory_free(struct shared_memory *m);

/* Opens a read-only descriptor of SHARED_MAPPABLE memory, or of a copy (below), for a client. The caller
 * closes it. Returns 0 or a negative errno. */
int shared_memory_reader(int fd, int *ret_fd);
/* Returns the pages of lent memory to the system, even those that a client maps (it would read zeros), and
 * frees *m. Takes about a millisecond for some MiB. Any thread. */
void shared_memory_discard(struct shared_memory *m);
/* Returns a part of lent memory, in whole pages, to the system. The memory stays in use and reads as zeros
 * there. */
void shared_memory_punch(const struct shared_memory *m, uint64_t offset, uint64_t bytes);

/* Makes a sealed, immutable copy of a file, so that nobody can change or truncate what is served. *ret_fd is
 * its only descriptor, for reading; nothing is mapped. */
int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd);
/* Returns true if fd is a copy made by shared_memory_copy_file(). */
bool shared_memory_is_sealed(int fd);
/* Returns true if another process still has a descriptor of the copy, or maps it. */
bool shared_memory_copy_is_held(int fd);
