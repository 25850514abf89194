/* SPDX-License-Identifier: Apache-2.0 */
#include "shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/huge_pages.h"

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1; older C libraries lack the name */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define PAGE_BYTES 4096 /* a part of a page would be zeroed but not freed */
#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Seals memory of all kinds. Also, lent memory must not be opened for writing by name (/proc/PID/fd). */
static int restrict_access(int fd, enum shared_kind kind)
{
	if (fcntl(fd, F_ADD_SEALS, SIZE_SEALS | (kind == SHARED_SEALED ? F_SEAL_FUTURE_WRITE : 0)) < 0)
		return -errno;
	return kind == SHARED_MAPPABLE && fchmod(fd, 0400) < 0 ? -errno : 0;
}

int shared_memory_new(const char *name, uint64_t bytes, enum shared_kind kind, struct shared_memory *ret)
{
	_cleanup_(closep) int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	void *data;
	int r;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	data = huge_map(fd, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (data == MAP_FAILED)
		return -errno;
	huge_leave_out_of_core(data, bytes);
	r = restrict_access(fd, kind);
	if (r < 0) {
		munmap(data, bytes);
		return r;
	}
	*ret = (struct shared_memory){.fd = steal_fd(&fd), .data = data, .bytes = bytes};
	return 0;
}

int shared_memory_check(int fd, uint64_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0 || fstat(fd, &st) < 0)
		return -errno;
	return (seals & SIZE_SEALS) == SIZE_SEALS && st.st_uid == geteuid() &&
		       (st.st_mode & ALLPERMS) == 0400 && (uint64_t)st.st_size == bytes
		   ? 0
		   : -EPERM;
}

int shared_memory_take(int fd, uint64_t bytes, struct shared_memory *ret)
{
	int r = shared_memory_check(fd, bytes);
	void *data;

	if (r < 0)
		return r;
	data = huge_map(fd, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (data == MAP_FAILED)
		return -errno;
	huge_leave_out_of_core(data, bytes);
	*ret = (struct shared_memory){.fd = fd, .data = data, .bytes = bytes};
	return 0;
}

void shared_memory_free(struct shared_memory *m)
{
	if (m->data)
		munmap(m->data, m->bytes);
	closep(&m->fd);
	*m = SHARED_MEMORY_INIT;
}

int shared_memory_reader(int fd, int *ret_fd)
{
	char path[FD_PATH_BYTES];
	int again;

	fd_path(fd, path);
	again = open(path, O_RDONLY | O_CLOEXEC);
	if (again < 0)
		return -errno;
	*ret_fd = again;
	return 0;
}

void shared_memory_punch(const struct shared_memory *m, uint64_t offset, uint64_t bytes)
{
	/* Never fails for lent memory. If it did, the pages would be freed with the last mapping. */
	(void)fallocate(m->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
}

void shared_memory_discard(struct shared_memory *m)
{
	if (m->fd >= 0)
		shared_memory_punch(m, 0, (m->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
	shared_memory_free(m);
}

bool shared_memory_is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS), all = SIZE_SEALS | F_SEAL_WRITE;

	return seals >= 0 && (seals & all) == all;
}

/* The kernel grants a write lease only if no other open file or mapping of it exists. */
bool shared_memory_copy_is_held(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
		return errno == EAGAIN;
	(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	return false;
}
