/* SPDX-License-Identifier: Apache-2.0 */
#include "mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/proc.h"
#include "mounts.h"

#define FDINFO_BYTES 512

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20 /* Linux 5.12; Debian 11's headers lack it */
#endif

static struct mounts *mounts_of(const char *root, pid_t pid)
{
	struct mounts *mounts = NULL;
	char path[4200];

	snprintf(path, sizeof(path), "%s/%d/mountinfo", root, (int)pid);
	return mounts_read(path, &mounts) == 0 ? mounts : NULL;
}

static bool is_fuse(const char *type)
{
	return !strncmp(type, "fuse", 4);
}

/* Opens with O_PATH, which calls no driver, waits for no pipe and asks no server. */
static int open_mapping(const char *root, pid_t pid, const struct proc_mapping *mapping)
{
	char link[4250];
	int fd;

	snprintf(link, sizeof(link), "%s/%d/map_files/%llx-%llx", root, (int)pid,
		 (unsigned long long)mapping->start, (unsigned long long)mapping->end);
	fd = open(link, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Walks only through folders that the kernel has cached, so that it waits for no server. If a folder is not
 * cached, as on a network file system, a normal look-up follows, unless a process (FUSE) serves part of the
 * path. */
static int open_path(const char *root, pid_t pid, const struct proc_mapping *mapping)
{
	_cleanup_(mounts_freep) struct mounts *mounts = mounts_of(root, pid);
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
			       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_CACHED};
	_cleanup_(closep) int root_fd = -1;
	char link[4250];
	int fd;

	snprintf(link, sizeof(link), "%s/%d/root", root, (int)pid);
	root_fd = open(link, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root_fd < 0)
		return -errno;
	fd = (int)syscall(SYS_openat2, root_fd, mapping->path, &how, sizeof(how));
	if (fd < 0 && errno == EAGAIN && mounts && !mounts_path_meets(mounts, mapping->path, is_fuse)) {
		how.resolve &= ~(uint64_t)RESOLVE_CACHED;
		fd = (int)syscall(SYS_openat2, root_fd, mapping->path, &how, sizeof(how));
	}
	return fd < 0 ? -errno : fd;
}

static bool is_regular(int fd)
{
	struct statx info;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &info) == 0 &&
	       S_ISREG(info.stx_mode);
}

/* Reads the number of the mount that a descriptor is on, without asking its file system. */
static bool mount_of(int fd, uint32_t *ret_id)
{
	_cleanup_(freep) char *text = NULL;
	const char *line;
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (proc_read_file(path, FDINFO_BYTES, &text, NULL) < 0)
		return false;
	line = strstr(text, "mnt_id:");
	return line && sscanf(line, "mnt_id: %" SCNu32, ret_id) == 1;
}

/* A mapping of an overlay may refer to the layer below, which has no visible mount, but a known device. */
static bool is_served_by_kernel(int fd, const char *root, pid_t pid, const struct proc_mapping *mapping,
				bool is_exact)
{
	uint32_t device = (uint32_t)mapping->device, id;

	if (!mount_of(fd, &id))
		return false;
	for (int i = 0; i < 2; i++) {
		_cleanup_(mounts_freep) struct mounts *mounts =
		    i == 0 ? mounts_of(root, pid) : mounts_of("/proc", getpid());
		const char *type = mounts_type(mounts, id, is_exact ? device : 0);

		if (type)
			return !is_fuse(type);
	}
	return is_exact && device >> DEVICE_MINOR_BITS; /* a disk */
}

struct search {
	uint64_t address;
	const struct proc_mapping *wanted;
};

static int compare_mapping(void *user, const struct proc_mapping *own)
{
	const struct search *search = user;

	if (own->start != search->address)
		return 0;
	return own->device == search->wanted->device && own->inode == search->wanted->inode ? 1 : -ESTALE;
}

/* On some file systems (overlays, btrfs) stat() and maps show different numbers. So this maps the file
 * too, and compares the kernel's description of both mappings. */
static bool is_mapped_file(int fd, const struct proc_mapping *mapping)
{
	long page_bytes = sysconf(_SC_PAGESIZE);
	void *page = mmap(NULL, (size_t)page_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	struct search search = {(uintptr_t)page, mapping};
	int r;

	if (page == MAP_FAILED)
		return false;
	r = proc_mappings("/proc", getpid(), compare_mapping, &search);
	munmap(page, (size_t)page_bytes);
	return r == 1;
}

int mapped_file_open(const char *root, pid_t pid, const struct proc_mapping *mapping)
{
	_cleanup_(closep) int at = open_mapping(root, pid, mapping), fd = -1;
	bool is_exact = at >= 0;

	if (!is_exact)
		at = open_path(root, pid, mapping);
	if (at < 0)
		return at;
	if (!is_served_by_kernel(at, root, pid, mapping, is_exact) || !is_regular(at))
		return -EACCES;
	fd = file_reopen(at, O_RDONLY);
	if (fd < 0)
		return fd;
	if (!is_exact && !is_mapped_file(fd, mapping))
		return -ESTALE;
	return steal_fd(&fd);
}
