/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a file into sealed memory. Most of the time goes into allocating pages. The kernel does that for
 * several threads in parallel, but for only one write() or sendfile() per file. So threads read into a
 * mapping.
 *
 * Pages that are not in the page cache would be brought there one by one, which occupies a disk for longer
 * than large reads do. These are read past the page cache, into a large buffer per thread, if the file can be
 * opened so.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/huge_pages.h"
#include "lib/fd_io.h"
#include "lib/kernel_calls.h"
#include "shared_memory.h"

#define PIECE_BYTES  ((uint64_t)2 << 20) /* size of a piece: a huge page */
#define PAGE_BYTES   ((uint64_t)4096)
#define MAX_THREADS  8 /* maximum: more threads would slow each other down */
#define DISK_THREADS 4 /* minimum number of threads to read from a disk, even with fewer CPUs */

struct copying {
	int fd, direct_fd; /* two descriptors of the same file; direct_fd -EBADF: not available */
	unsigned char *to;
	uint64_t bytes;
	atomic_uint_fast64_t next; /* first byte that no thread copies yet */
	atomic_int result;
};

/* Returns how much of the piece was read directly. If that is not all, reading the rest shows the error. */
static uint64_t copy_directly(const struct copying *c, void *buffer, uint64_t at, uint64_t bytes)
{
	ssize_t n =
	    pread(c->direct_fd, buffer, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, (off_t)at);
	uint64_t done = n < 0 ? 0 : (uint64_t)n < bytes ? (uint64_t)n : bytes;

	memcpy(c->to + at, buffer, done);
	return done;
}

static int copy_piece(const struct copying *c, void *buffer, uint64_t at)
{
	uint64_t bytes = c->bytes - at < PIECE_BYTES ? c->bytes - at : PIECE_BYTES;
	uint64_t direct = buffer ? copy_directly(c, buffer, at, bytes) : 0;
	size_t done;
	int r = fd_read_at(c->fd, c->to + at + direct, bytes - direct, at + direct, &done);

	if (r == -EFAULT)
		return -ENOMEM;                                /* no memory for a page of the copy */
	return r == 0 && done < bytes - direct ? -EBADMSG : r; /* the file has shrunk since it was opened */
}

/* Allocates twice the needed size, so that it contains a whole huge page. NULL: no memory; copy without a
 * buffer. */
static uint8_t *buffer_new(void)
{
	uint8_t *memory =
	    mmap(NULL, 2 * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	huge_leave_out_of_core(memory, 2 * PIECE_BYTES);
	(void)madvise(memory, 2 * PIECE_BYTES, MADV_HUGEPAGE);
	return memory;
}

static void *copy_pieces(void *user)
{
	struct copying *c = user;
	uint8_t *memory = c->direct_fd < 0 ? NULL : buffer_new();
	uint8_t *buffer = memory ? memory + PIECE_BYTES - (uintptr_t)memory % PIECE_BYTES : NULL;
	uint64_t at;

	while (atomic_load(&c->result) == 0 && (at = atomic_fetch_add(&c->next, PIECE_BYTES)) < c->bytes) {
		int r = copy_piece(c, buffer, at);

		if (r < 0)
			atomic_store(&c->result, r);
	}
	if (memory)
		munmap(memory, 2 * PIECE_BYTES);
	return NULL;
}

/* Copies with several threads, of which this is one; others may fail to start. All have ended on return. */
static int copy_by_threads(struct copying *c)
{
	cpu_set_t cpus;
	uint32_t n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1;
	pthread_t threads[MAX_THREADS - 1];
	uint32_t n = 0;

	if (c->direct_fd >= 0 && n_cpus < DISK_THREADS)
		n_cpus = DISK_THREADS;
	while (n < MAX_THREADS - 1 && n + 1 < n_cpus && (n + 1) * PIECE_BYTES < c->bytes &&
	       pthread_create(&threads[n], NULL, copy_pieces, c) == 0)
		n++;
	copy_pieces(c);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	return atomic_load(&c->result);
}

/* Opens the file again, to read past the page cache. -EBADF: most of the file is in the page cache, or
 * this is unknown. Leaves the client's own descriptor unchanged. */
static int open_directly(int fd, uint64_t bytes)
{
	uint64_t n_cached = UINT64_MAX;

	if (kernel_cached_pages(fd, 0, bytes, &n_cached) < 0 || n_cached > bytes / PAGE_BYTES / 2)
		return -EBADF;
	fd = file_reopen(fd, O_RDONLY | O_DIRECT);
	return fd < 0 ? -EBADF : fd;
}

int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd)
{
	_cleanup_(closep) int copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	_cleanup_(closep) int direct = bytes > PIECE_BYTES ? open_directly(fd, bytes) : -EBADF;
	struct copying c = {.fd = fd, .direct_fd = direct, .bytes = bytes};
	int r = 0;

	if (copy < 0 || ftruncate(copy, (off_t)bytes) < 0)
		return -errno;
	if (bytes > 0) {
		c.to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
		if (c.to == MAP_FAILED)
			return -errno;
		huge_leave_out_of_core(c.to, bytes);
		r = copy_by_threads(&c);
		munmap(c.to, bytes);
	}
	if (r < 0)
		return r;
	if (fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	return shared_memory_reader(copy, ret_fd);
}
