/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* All of it: read(2) and write(2) until everything is done, or nothing more can be. A signal ends none of
 * them. */

#include <stddef.h>
#include <stdint.h>

/* Reads `bytes`, fewer only where the file ends before. -errno: what was read until then is lost. */
int fd_read(int fd, void *data, size_t bytes, size_t *ret_done);
int fd_read_at(int fd, void *data, size_t bytes, uint64_t offset, size_t *ret_done);

/* -errno: some of it may have been written; -ENOSPC also where the kernel takes nothing more without saying
 * why. */
int fd_write(int fd, const void *data, size_t bytes);
int fd_write_at(int fd, const void *data, size_t bytes, uint64_t offset);
