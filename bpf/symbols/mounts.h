/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Maps a device and a path in its file system to a path of this machine. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEVICE_MINOR_BITS 20 /* bits of the minor number in the kernel's dev_t, as in s_dev */

struct mounts;

/* Reads a mountinfo file (proc(5)). A line that cannot be understood is left out. -errno. */
int mounts_read(const char *mountinfo_path, struct mounts **ret_mounts);
void mounts_free(struct mounts *mounts);
static inline void mounts_freep(struct mounts **mounts)
{
	mounts_free(*mounts);
}

/* device is the kernel's dev_t, as in s_dev; inner is an absolute path within the file system. Writes at most
 * size bytes, with the NUL; a longer path is cut. -ENOENT: not mounted here; path is then a copy of inner. */
int mounts_path(const struct mounts *mounts, uint32_t device, const char *inner, char *path, size_t size);

/* Returns the type of the file system that has this number in /proc/PID/fdinfo (mnt_id), or else this device
 * (0: not known), such as "ext4"; NULL: it is not mounted here. Valid as long as mounts. */
const char *mounts_type(const struct mounts *mounts, uint32_t id, uint32_t device);

/* Returns true if a path without links passes through a mount whose type is_met() accepts. */
bool mounts_path_meets(const struct mounts *mounts, const char *path, bool (*is_met)(const char *type));
