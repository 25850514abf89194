/* SPDX-License-Identifier: Apache-2.0 */
/* The stager's side of stager.h: one thread per slot. Each takes the next order from the socket, and does
 * nothing else until that is done. A slot has one order at a time, so an order always finds a free thread. */
#include "stager.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "daemon/helpers/helper.h"
#include "daemon/helpers/message.h"
#include "lib/file_safety.h"
#include "lib/huge_pages.h"
#include "lib/kernel_calls.h"

#define UNFINISHED "unfinished-"
/* A killed daemon may leave a process that still holds the lock for a while. */
#define LOCK_TRIES   100
#define LOCK_WAIT_NS 100000000

struct buffer_of_slot {
	uint8_t *data;
	uint64_t bytes;
};

struct stager_here {
	int fd, folder_fd;
	struct buffer_of_slot buffers[STAGER_SLOTS];
};

static void tell(const struct stager_here *s, const struct stager_report *report)
{
	ssize_t n;

	do
		n = send(s->fd, report, sizeof(*report), MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
}

/* Makes the slot's buffer large enough, of huge pages where possible. It is reused for later chunks. */
static int need_buffer(struct buffer_of_slot *b, uint64_t bytes)
{
	uint64_t size = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
	void *data;

	if (bytes > STAGER_MAX_BYTES)
		return -EFBIG;
	if (bytes <= b->bytes)
		return 0;
	data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (data == MAP_FAILED)
		return -ENOMEM;
	huge_leave_out_of_core(data, size);
	(void)madvise(data, size, MADV_HUGEPAGE);
	if (b->data)
		munmap(b->data, b->bytes);
	*b = (struct buffer_of_slot){.data = data, .bytes = size};
	return 0;
}

/* Opens a file without the page cache, if the file system supports that. */
static int open_file(const struct stager_here *s, const char *name, int flags)
{
	int fd = openat(s->folder_fd, name, flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 && errno == EINVAL)
		fd = openat(s->folder_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

static int write_whole(int fd, const struct stager_order *o, uint8_t *data)
{
	uint64_t bytes = stager_file_bytes(o->bytes);

	memset(data + o->bytes, 0, bytes - o->bytes);
	/* Reserves all space at once, so that a full disk fails early and the file has few extents. */
	if (fallocate(fd, 0, 0, (off_t)bytes) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	return fd_write_at(fd, data, bytes, 0);
}

static int do_write(struct stager_here *s, const struct stager_order *o, uint8_t *data)
{
	char unfinished[32];
	int fd, r;

	snprintf(unfinished, sizeof(unfinished), UNFINISHED "%u", o->slot);
	fd = open_file(s, unfinished, O_WRONLY | O_CREAT | O_TRUNC);
	if (fd < 0)
		return fd;
	r = write_whole(fd, o, data);
	if (close(fd) < 0 && r == 0)
		r = -errno;
	if (r == 0 && renameat(s->folder_fd, unfinished, s->folder_fd, o->name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(s->folder_fd, unfinished, 0);
	return r;
}

static int do_fetch(const struct stager_here *s, const struct stager_order *o, uint8_t *data)
{
	int fd = open_file(s, o->name, O_RDONLY), r;
	uint64_t bytes = stager_file_bytes(o->bytes);
	size_t done = 0;

	if (fd < 0)
		return fd;
	r = fd_read_at(fd, data, bytes, 0, &done);
	close(fd);
	return r < 0 ? r : done == bytes ? 0 : -EBADMSG;
}

static int do_take(const struct stager_order *o, int memory_fd, uint8_t *data)
{
	size_t done = 0;
	int r = fd_read_at(memory_fd, data, o->bytes, 0, &done);

	return r < 0 ? r : done == o->bytes ? 0 : -EBADMSG;
}

static int apply_order(struct stager_here *s, const struct stager_order *o, int memory_fd)
{
	struct buffer_of_slot *b = &s->buffers[o->slot];
	int r = need_buffer(b, stager_file_bytes(o->bytes));

	if (r < 0)
		return r;
	if (o->verb == STAGER_WRITE || o->verb == STAGER_REMOVE)
		(void)kernel_io_idle();
	else
		(void)kernel_io_last();
	switch (o->verb) {
	case STAGER_TAKE: return do_take(o, memory_fd, b->data);
	case STAGER_WRITE: return do_write(s, o, b->data);
	case STAGER_FETCH: return do_fetch(s, o, b->data);
	case STAGER_GIVE: return huge_write_at(memory_fd, b->data, o->bytes, 0);
	case STAGER_REMOVE: return unlinkat(s->folder_fd, o->name, 0) < 0 && errno != ENOENT ? -errno : 0;
	}
	return -EINVAL;
}

/* Returns false when the daemon is gone. */
static bool receive(int fd, struct stager_order *o, int *ret_memory_fd)
{
	if (message_receive(fd, o, sizeof(*o), 0, ret_memory_fd, 1) < 0 || o->slot >= STAGER_SLOTS)
		return false;
	o->name[sizeof(o->name) - 1] = '\0';
	return true;
}

static void *serve(void *user)
{
	struct stager_here *s = user;
	struct stager_order order;
	int memory_fd;

	while (receive(s->fd, &order, &memory_fd)) {
		struct stager_report report = {.verb = order.verb, .slot = order.slot};

		report.result = apply_order(s, &order, memory_fd);
		if (report.result < 0)
			error_errno(&report.error, report.result, "%s",
				    order.name[0] ? order.name : "a buffer");
		closep(&memory_fd);
		tell(s, &report);
	}
	/* Does not wait for the other threads: they may be blocked for ever. */
	_exit(0);
}

static int lock_folder(int fd, const char *path, struct error *err)
{
	const struct timespec pause = {.tv_nsec = LOCK_WAIT_NS};

	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (errno != EWOULDBLOCK || i == LOCK_TRIES)
			return error_errno(err, -errno, "%s: another dieseld uses this folder", path);
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Opens the parent folder, after checking that nobody else can replace `path` in it. Symbolic links above
 * it are resolved only once. */
static int open_above(const char *path, const char **ret_name, struct error *err)
{
	char real[PATH_MAX], at[PATH_MAX];
	struct stat st;
	int r = file_safety_around(path, real, at, &st);

	if (r < 0)
		return error_errno(err, r, "%s: cannot be made", path);
	if (r != FILE_SAFE)
		return error_set(err, -EPERM,
				 "%s: others could replace this folder, because %s %s: change its owner "
				 "(chown) or mode (chmod go-w or +t)",
				 path, at,
				 r == FILE_OF_OTHERS ? "belongs to another user" : "is writable by others");
	int fd = open(real, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, -errno, "%s", real);
	*ret_name = strrchr(path, '/') + 1;
	return fd;
}

static int open_folder(struct stager_here *s, const char *path, struct error *err)
{
	const char *name = "";
	struct stat st;
	_cleanup_(closep) int above = open_above(path, &name, err);
	int fd;

	if (above < 0)
		return above;
	if (mkdirat(above, name, 0700) < 0 && errno != EEXIST)
		return error_errno(err, -errno, "%s: cannot be made", path);
	fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, -errno, "%s: cannot open this folder", path);
	s->folder_fd = fd;
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return error_set(err, -EPERM,
				 "%s: others have access to this folder: give it to dieseld's user only "
				 "(chown to uid %u, chmod 700)",
				 path, (unsigned)geteuid());
	return lock_folder(fd, path, err);
}

static bool is_unfinished(const char *name)
{
	size_t n = strlen(UNFINISHED);

	return strncmp(name, UNFINISHED, n) == 0 && isdigit((unsigned char)name[n]) && !name[n + 1];
}

/* Reports every file in the folder, and removes files that an earlier process did not finish. */
static int list_folder(const struct stager_here *s, const char *path, struct error *err)
{
	int copy = fcntl(s->folder_fd, F_DUPFD_CLOEXEC, 0);
	DIR *folder = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *entry;

	if (!folder)
		return error_errno(err, -errno, "%s: cannot be listed", path);
	while (errno = 0, (entry = readdir(folder))) {
		struct stager_report report = {.verb = STAGER_LISTED};
		struct stat st;

		if (is_unfinished(entry->d_name)) {
			(void)unlinkat(s->folder_fd, entry->d_name, 0);
			continue;
		}
		if (fstatat(s->folder_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		report.bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
		report.written_s = st.st_mtim.tv_sec;
		snprintf(report.name, sizeof(report.name), "%s", entry->d_name);
		tell(s, &report);
	}
	closedir(folder);
	return errno ? error_errno(err, -errno, "%s: cannot be listed", path) : 0;
}

static int begin(struct stager_here *s, struct stager_report *report)
{
	struct stager_order order;
	struct statvfs disk;
	int fd, r;

	if (!receive(s->fd, &order, &fd) || order.verb != STAGER_OPEN)
		return -ECONNRESET;
	for (size_t n = strlen(order.name); n > 1 && order.name[n - 1] == '/'; n--)
		order.name[n - 1] = '\0';
	r = open_folder(s, order.name, &report->error);
	if (r == 0)
		r = list_folder(s, order.name, &report->error);
	if (r == 0 && fstatvfs(s->folder_fd, &disk) == 0)
		report->bytes = disk.f_bavail * disk.f_frsize;
	return r;
}

int stager_run(int fd)
{
	static struct stager_here s = {.folder_fd = -EBADF};
	struct stager_report report = {.verb = STAGER_OPEN};
	pthread_t thread;

	s.fd = fd;
	report.result = begin(&s, &report);
	/* The folder and its files belong to this user, so CAP_DAC_READ_SEARCH was needed only for the
	 * folders above. */
	if (report.result == 0)
		report.result = helper_settle(HELPER_STAGER);
	for (int i = 1; i < STAGER_SLOTS && report.result == 0; i++) {
		int r = pthread_create(&thread, NULL, serve, &s);

		if (r > 0)
			report.result =
			    error_errno(&report.error, -r, "cannot start threads for this folder");
	}
	tell(&s, &report);
	if (report.result == 0)
		serve(&s);
	return 1;
}
