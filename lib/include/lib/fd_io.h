/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* read(2) and write(2), repeated until all bytes are transferred, the file ends, or an error occurs.
 * Signals do not interrupt them. */

#include <stddef.h>
#include <stdint.h>

/* Reads `bytes`, or fewer if the file ends earlier; *ret_done: the number of bytes read. On -errno, the bytes
 * read so far are lost. */
int fd_read(int fd, void *data, size_t bytes, size_t *ret_done);
int fd_read_at(int fd, void *data, size_t bytes, uint64_t offset, size_t *ret_done);

/* On -errno, some of the data may have been written. -ENOSPC also if the kernel writes no more bytes and
 * gives no reason. */
int fd_write(int fd, const void *data, size_t bytes);
int fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset);

/* Sends to a socket, without SIGPIPE. -EPIPE: no reader; other -errno. */
int fd_send(int socket, const void *data, size_t bytes);
