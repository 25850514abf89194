/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD shim that makes the k-th call which changes a file system, or which reads, fail. Instead, the
 * call can be cut short, or be the process's last.
 *
 *   FAILK=K          number of the call, in order of occurrence from 1. Counts write, pwrite, fsync,
 *                    fdatasync, ftruncate, open with O_CREAT, mkdir, link, unlink and the renames.
 *   FAILK_KIND=KIND  "read" counts read, pread and readdir instead.
 *                    "link" counts only link.
 *                    "short" counts reads and writes of more than one byte, which then do half of it.
 *   FAILK_ERRNO=N    error of the call (default EIO); 0: the process is killed instead
 *   FAILK_FROM=1     all later calls fail too, as on a disk that stays full
 *   FAILK_LOG=FD     descriptor to which a byte is written when call K is reached
 *
 * The shim does not touch file descriptors 0 to 2.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

static atomic_long n_calls;

static long setting(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? strtol(text, NULL, 10) : otherwise;
}

/* Returns 1 if this call is the chosen one, or a later one. */
static int is_chosen(void)
{
	long k = setting("FAILK", 0), call = atomic_fetch_add(&n_calls, 1) + 1;

	if (k == 0 || call < k || (call > k && !setting("FAILK_FROM", 0)))
		return 0;
	if (call == k)
		REAL(syscall)(SYS_write, (int)setting("FAILK_LOG", -1), "k", (size_t)1);
	return 1;
}

static int is_kind(const char *kind)
{
	const char *chosen = getenv("FAILK_KIND");

	return strcmp(chosen ? chosen : "change", kind) == 0;
}

/* Returns how many bytes of a read or a write are carried out. */
static size_t part_of(size_t bytes)
{
	return bytes > 1 && is_kind("short") && is_chosen() ? bytes / 2 : bytes;
}

static int fails_as(const char *kind)
{
	if (!is_kind(kind) || !is_chosen())
		return 0;
	errno = (int)setting("FAILK_ERRNO", EIO);
	if (errno == 0)
		kill(getpid(), SIGKILL);
	return 1;
}

/* Returns 1, with errno set, if this call must fail. */
static int fails(void)
{
	return fails_as("change");
}

ssize_t write(int fd, const void *data, size_t bytes)
{
	return fd > 2 && fails() ? -1 : REAL(write)(fd, data, fd > 2 ? part_of(bytes) : bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
	return fails() ? -1 : REAL(pwrite)(fd, data, part_of(bytes), offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
	return fails() ? -1 : REAL(pwrite64)(fd, data, part_of(bytes), offset);
}

ssize_t read(int fd, void *data, size_t bytes)
{
	return fails_as("read") ? -1 : REAL(read)(fd, data, part_of(bytes));
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
	return fails_as("read") ? -1 : REAL(pread)(fd, data, part_of(bytes), offset);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset)
{
	return fails_as("read") ? -1 : REAL(pread64)(fd, data, part_of(bytes), offset);
}

struct dirent *readdir(DIR *dir)
{
	return fails_as("read") ? NULL : REAL(readdir)(dir);
}

struct dirent64 *readdir64(DIR *dir)
{
	return fails_as("read") ? NULL : REAL(readdir64)(dir);
}

int fsync(int fd)
{
	return fails() ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
	return fails() ? -1 : REAL(fdatasync)(fd);
}

int ftruncate(int fd, off_t bytes)
{
	return fails() ? -1 : REAL(ftruncate)(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
	return fails() ? -1 : REAL(ftruncate64)(fd, bytes);
}

int mkdir(const char *path, mode_t mode)
{
	return fails() ? -1 : REAL(mkdir)(path, mode);
}

int mkdirat(int dir_fd, const char *path, mode_t mode)
{
	return fails() ? -1 : REAL(mkdirat)(dir_fd, path, mode);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	return fails_as("link") || fails() ? -1 : REAL(linkat)(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
	return fails() ? -1 : REAL(unlink)(path);
}

int unlinkat(int dir_fd, const char *path, int flags)
{
	return fails() ? -1 : REAL(unlinkat)(dir_fd, path, flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	return fails() ? -1 : REAL(renameat)(from_fd, from, to_fd, to);
}

/* Replaces renameat2, which lib/kernel_calls.h calls through syscall(). */
long syscall(long number, ...)
{
	long a[6];
	va_list args;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	return number == SYS_renameat2 && fails() ? -1
						  : REAL(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static mode_t mode_of(int flags, va_list args)
{
	return flags & O_CREAT ? va_arg(args, mode_t) : 0;
}

#define OPEN(name)                                                                                           \
	int name(const char *path, int flags, ...)                                                           \
	{                                                                                                    \
		va_list args;                                                                                \
		va_start(args, flags);                                                                       \
		mode_t mode = mode_of(flags, args);                                                          \
		va_end(args);                                                                                \
		return flags & O_CREAT && fails() ? -1 : REAL(name)(path, flags, mode);                      \
	}

#define OPENAT(name)                                                                                         \
	int name(int dir_fd, const char *path, int flags, ...)                                               \
	{                                                                                                    \
		va_list args;                                                                                \
		va_start(args, flags);                                                                       \
		mode_t mode = mode_of(flags, args);                                                          \
		va_end(args);                                                                                \
		return flags & O_CREAT && fails() ? -1 : REAL(name)(dir_fd, path, flags, mode);              \
	}

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
