/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory for the results of worker processes. The memory is reused, so that its pages stay in the page
 * tables of both processes. */
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/share.h"
#include "lib/cleanup.h"

enum result_state { RESULT_FREE = 0, RESULT_BORROWED = 1 };

_Static_assert(sizeof(_Atomic uint32_t) <= DIESEL_RESULT_HEADER, "the state fits");

static int map(int fd, uint64_t bytes, uint8_t **ret_data)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	*ret_data = p;
	return 0;
}

int diesel_result_new(uint64_t bytes, uint8_t **ret_data, int *ret_fd)
{
	_cleanup_(closep) int fd = memfd_create("diesel-result", MFD_CLOEXEC);
	int r;

	if (bytes < DIESEL_RESULT_HEADER)
		return -EINVAL;
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	r = map(fd, bytes, ret_data);
	if (r < 0)
		return r;
	diesel_result_borrow(*ret_data);
	*ret_fd = steal_fd(&fd);
	return 0;
}

int diesel_result_map(int fd, uint64_t bytes, uint8_t **ret_data)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	/* Reading a mapping beyond the end of its file would raise SIGBUS. */
	if (bytes < DIESEL_RESULT_HEADER || (uint64_t)st.st_size < bytes)
		return -EPROTO;
	return map(fd, bytes, ret_data);
}

void diesel_result_unmap(uint8_t *data, uint64_t bytes)
{
	if (data)
		munmap(data, bytes);
}

void diesel_result_borrow(uint8_t *data)
{
	atomic_store_explicit((_Atomic uint32_t *)data, RESULT_BORROWED, memory_order_relaxed);
}

void diesel_result_free(uint8_t *data)
{
	atomic_store_explicit((_Atomic uint32_t *)data, RESULT_FREE, memory_order_release);
}

int diesel_result_is_free(const uint8_t *data)
{
	return atomic_load_explicit((const _Atomic uint32_t *)data, memory_order_acquire) == RESULT_FREE;
}
