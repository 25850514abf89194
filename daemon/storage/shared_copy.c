/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a file into sealed memory. Most of the time goes into getting the pages, which the kernel does for
 * several threads at once, but for one writer or sendfile() of a file only; so threads read into a mapping.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "shared_memory.h"

#define PIECE_BYTES ((uint64_t)4 << 20)
#define MAX_THREADS 8 /* more would be in each other's way */

struct copying {
	int fd;
	unsigned char *to;
	uint64_t bytes;
	atomic_uint_fast64_t next; /* byte that nobody copies yet */
	atomic_int result;
};

static int copy_piece(const struct copying *c, uint64_t at)
{
	uint64_t bytes = c->bytes - at < PIECE_BYTES ? c->bytes - at : PIECE_BYTES;
	size_t done;
	int r = fd_read_at(c->fd, c->to + at, bytes, at, &done);

	if (r == -EFAULT)
		return -ENOMEM;                       /* no page for the copy */
	return r == 0 && done < bytes ? -EBADMSG : r; /* it shrank while it was read */
}

static void *copy_pieces(void *user)
{
	struct copying *c = user;
	uint64_t at;

	while (atomic_load(&c->result) == 0 && (at = atomic_fetch_add(&c->next, PIECE_BYTES)) < c->bytes) {
		int r = copy_piece(c, at);

		if (r < 0)
			atomic_store(&c->result, r);
	}
	return NULL;
}

/* This thread does all that others, of which there may be none, do not. All have ended when it returns. */
static int copy_by_threads(struct copying *c)
{
	cpu_set_t cpus;
	uint32_t n_cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (uint32_t)CPU_COUNT(&cpus) : 1;
	pthread_t threads[MAX_THREADS - 1];
	uint32_t n = 0;

	while (n < MAX_THREADS - 1 && n + 1 < n_cpus && (n + 1) * PIECE_BYTES < c->bytes &&
	       pthread_create(&threads[n], NULL, copy_pieces, c) == 0)
		n++;
	copy_pieces(c);
	while (n > 0)
		pthread_join(threads[--n], NULL);
	return atomic_load(&c->result);
}

int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd)
{
	_cleanup_(closep) int copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct copying c = {.fd = fd, .bytes = bytes};
	int r = 0;

	if (copy < 0 || ftruncate(copy, (off_t)bytes) < 0)
		return -errno;
	if (bytes > 0) {
		c.to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
		if (c.to == MAP_FAILED)
			return -errno;
		r = copy_by_threads(&c);
		munmap(c.to, bytes);
	}
	if (r < 0)
		return r;
	if (fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	return shared_memory_reader(copy, ret_fd);
}
