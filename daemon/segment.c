/* SPDX-License-Identifier: Apache-2.0 */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "lib/cleanup.h"

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1; older C libraries lack the name */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int shared_memory_new(const char *name, uint64_t bytes, bool writable_by_client, struct shared_memory *ret)
{
	_cleanup_(closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *data;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS | (writable_by_client ? 0 : F_SEAL_FUTURE_WRITE)) < 0) {
		int r = -errno;

		munmap(data, bytes);
		return r;
	}
	*ret = (struct shared_memory){.fd = steal_fd(&fd), .data = data, .bytes = bytes};
	return 0;
}

void shared_memory_free(struct shared_memory *m)
{
	if (m->data)
		munmap(m->data, m->bytes);
	closep(&m->fd);
	*m = SHARED_MEMORY_INIT;
}

int shared_memory_copy_file(const char *name, int fd, uint64_t bytes, int *ret_fd)
{
	_cleanup_(closep) int copy = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	off_t offset = 0;

	if (copy < 0)
		return -errno;
	while ((uint64_t)offset < bytes) {
		ssize_t n = sendfile(copy, fd, &offset, bytes - (uint64_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EBADMSG; /* shrank while it was read */
	}
	if (fcntl(copy, F_ADD_SEALS, SIZE_SEALS | F_SEAL_WRITE) < 0)
		return -errno;
	*ret_fd = steal_fd(&copy);
	return 0;
}
