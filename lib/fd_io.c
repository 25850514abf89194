/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/fd_io.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT_POSITION UINT64_MAX /* offset that stands for the descriptor's own position */

static int read_all(int fd, char *data, size_t bytes, uint64_t offset, size_t *ret_done)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = offset == AT_POSITION
				? read(fd, data + done, bytes - done)
				: pread(fd, data + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	*ret_done = done;
	return 0;
}

static int write_all(int fd, const char *data, size_t bytes, uint64_t offset)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t n = offset == AT_POSITION
				? write(fd, data + done, bytes - done)
				: pwrite(fd, data + done, bytes - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENOSPC;
		done += (size_t)n;
	}
	return 0;
}

int fd_read(int fd, void *data, size_t bytes, size_t *ret_done)
{
	return read_all(fd, data, bytes, AT_POSITION, ret_done);
}

int fd_read_at(int fd, void *data, size_t bytes, uint64_t offset, size_t *ret_done)
{
	return read_all(fd, data, bytes, offset, ret_done);
}

int fd_write(int fd, const void *data, size_t bytes)
{
	return write_all(fd, data, bytes, AT_POSITION);
}

int fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset)
{
	return write_all(fd, data, bytes, offset);
}

int fd_send(int socket, const void *data, size_t bytes)
{
	const char *from = data;

	while (bytes > 0) {
		ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		from += n;
		bytes -= (size_t)n;
	}
	return 0;
}
