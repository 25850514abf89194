/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* read(2) and write(2), repeated until everything is done or nothing more can be. Signals do not end them. */

#include <stddef.h>
#include <stdint.h>

/* Reads `bytes`, and fewer only where the file ends earlier; *ret_done says how many. On -errno, what was
 * read until then is lost. */
int fd_read(int fd, void *data, size_t bytes, size_t *ret_done);
int fd_read_at(int fd, void *data, size_t bytes, uint64_t offset, size_t *ret_done);

/* On -errno, some of the data may have been written. -ENOSPC also where the kernel takes nothing more without
 * saying why. */
int fd_write(int fd, const void *data, size_t bytes);
int fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset);

/* To a socket, without SIGPIPE. -errno; -EPIPE: nobody reads. */
int fd_send(int socket, const void *data, size_t bytes);
