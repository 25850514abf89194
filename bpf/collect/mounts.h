/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where file systems are mounted: from a device and a path within its file system to a path of this machine.
 */

#include <stddef.h>
#include <stdint.h>

struct mounts;

/* Reads a mountinfo file (proc(5)). A line that cannot be understood is left out. -errno. */
int mounts_read(const char *mountinfo_path, struct mounts **ret_mounts);
void mounts_free(struct mounts *mounts);

/* device: the kernel's dev_t, as s_dev has it. inner: absolute, within the file system. Writes at most size
 * bytes with the ending NUL, cut if need be. -ENOENT: not mounted here; path is inner then. */
int mounts_path(const struct mounts *mounts, uint32_t device, const char *inner, char *path, size_t size);
