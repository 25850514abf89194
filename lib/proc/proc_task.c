/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/proc_task.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/sorted.h"

#define STANDARD_FDS 3

int proc_schedstat_parse(const char *text, struct proc_schedstat *ret_schedstat)
{
	struct proc_schedstat stat;

	if (sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &stat.exec_ns, &stat.queue_ns, &stat.n_slices) !=
	    3)
		return -EBADMSG;
	*ret_schedstat = stat;
	return 0;
}

/* The text is "running", or "-1 SP PC" for a sleep outside of a call (SP is 0 for a zombie, which has no
 * stack any more), or "NR A0 ... A5 SP PC". */
int proc_syscall_parse(const char *text, struct proc_syscall *ret_syscall)
{
	struct proc_syscall call = {0};
	char *end;
	long nr;

	if (!strncmp(text, "running", 7)) {
		*ret_syscall = (struct proc_syscall){.running = true};
		return 0;
	}
	errno = 0;
	nr = strtol(text, &end, 10);
	if (end == text || errno || nr < -1 || nr > UINT16_MAX)
		return -EBADMSG;
	call.in_call = nr >= 0;
	call.nr = call.in_call ? (uint16_t)nr : 0;
	call.ended = !call.in_call && !strtoull(end, NULL, 16);
	for (size_t i = 0; call.in_call && i < 6; i++) {
		const char *at = end;

		call.args[i] = strtoull(at, &end, 16);
		if (end == at)
			return -EBADMSG;
	}
	*ret_syscall = call;
	return 0;
}

int proc_io_parse(const char *text, struct proc_io *ret_io)
{
	struct proc_io io;

	if (sscanf(text,
		   "rchar: %" SCNu64 " wchar: %" SCNu64 " syscr: %" SCNu64 " syscw: %" SCNu64
		   " read_bytes: %" SCNu64 " write_bytes: %" SCNu64,
		   &io.read_chars, &io.written_chars, &io.n_reads, &io.n_writes, &io.read_bytes,
		   &io.write_bytes) != 6)
		return -EBADMSG;
	*ret_io = io;
	return 0;
}

/* Functions of Linux 4.x to 6.x in which threads sleep, by a part of their names: compilers add suffixes, and
 * new releases prefixes. The first match counts. */
static const struct {
	const char *part;
	enum proc_wait wait;
} functions[] = {
    {"pipe_write", PROC_WAIT_PIPE_WRITE},
    {"pipe_wait_write", PROC_WAIT_PIPE_WRITE},
    {"pipe", PROC_WAIT_PIPE},
    {"futex", PROC_WAIT_FUTEX},
    {"poll", PROC_WAIT_POLL}, /* poll_schedule_timeout, do_sys_poll, ep_poll */
    {"do_select", PROC_WAIT_POLL},
    {"nanosleep", PROC_WAIT_TIMER},
    {"do_wait", PROC_WAIT_CHILD},
    {"fsync", PROC_WAIT_FILE_WRITE},
    {"sync_file", PROC_WAIT_FILE_WRITE},
    {"jbd2", PROC_WAIT_FILE_WRITE},
    {"log_force", PROC_WAIT_FILE_WRITE},
    {"writeback", PROC_WAIT_FILE_WRITE},
    {"dirty_pages", PROC_WAIT_FILE_WRITE},
    {"folio", PROC_WAIT_FILE_READ},
    {"wait_on_page", PROC_WAIT_FILE_READ},
    {"wait_on_buffer", PROC_WAIT_FILE_READ},
    {"wait_on_bit", PROC_WAIT_FILE_READ},
    {"filemap", PROC_WAIT_FILE_READ},
    {"io_schedule", PROC_WAIT_FILE_READ},
    {"blk_", PROC_WAIT_FILE_READ},
    {"blkdev", PROC_WAIT_FILE_READ},
    {"dio", PROC_WAIT_FILE_READ},
    {"rpc_wait", PROC_WAIT_FILE_READ},
    {"nfs", PROC_WAIT_FILE_READ},
    {"fuse", PROC_WAIT_FILE_READ},
    {"cqring_wait", PROC_WAIT_FILE_READ},
    {"sk_wait", PROC_WAIT_SOCKET},
    {"unix_stream", PROC_WAIT_SOCKET},
    {"skb_wait", PROC_WAIT_SOCKET},
    {"inet", PROC_WAIT_SOCKET},
    {"tcp", PROC_WAIT_SOCKET},
    {"ioctl", PROC_WAIT_DEVICE},
    {"nvidia", PROC_WAIT_DEVICE},
};

enum proc_wait proc_wchan_wait(const char *wchan, bool uninterruptible)
{
	if (!*wchan || !strcmp(wchan, "0"))
		return uninterruptible ? PROC_WAIT_FILE_READ : PROC_WAIT_UNKNOWN;
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (strstr(wchan, functions[i].part))
			return functions[i].wait;
	return PROC_WAIT_OTHER;
}

static struct proc_link parse_link(const char *text)
{
	if (!strncmp(text, "pipe:[", 6))
		return (struct proc_link){PROC_FILE_PIPE, strtoull(text + 6, NULL, 10)};
	if (!strncmp(text, "socket:[", 8))
		return (struct proc_link){PROC_FILE_SOCKET, strtoull(text + 8, NULL, 10)};
	if (!strncmp(text, "/dev/", 5) && strncmp(text, "/dev/shm/", 9))
		return (struct proc_link){PROC_FILE_DEVICE, 0};
	return (struct proc_link){text[0] == '/' ? PROC_FILE_REGULAR : PROC_FILE_OTHER, 0};
}

int proc_link_read(const char *root, pid_t pid, int fd, struct proc_link *ret_link)
{
	char path[4200], text[64]; /* only the start of the link matters */
	ssize_t length;

	snprintf(path, sizeof(path), "%s/%d/fd/%d", root, (int)pid, fd);
	length = readlink(path, text, sizeof(text) - 1);
	if (length < 0)
		return -errno;
	text[length] = '\0';
	*ret_link = parse_link(text);
	return 0;
}

int proc_pipes(const char *root, pid_t pid, uint64_t *inodes, size_t max, size_t *ret_n)
{
	char path[4200];
	struct dirent *entry;
	size_t n = 0, n_different = 0;
	DIR *directory;

	snprintf(path, sizeof(path), "%s/%d/fd", root, (int)pid);
	directory = opendir(path);
	if (!directory)
		return -errno;
	while (n < max && (entry = readdir(directory))) {
		struct proc_link link;
		char *end;
		long fd = strtol(entry->d_name, &end, 10);

		if (end == entry->d_name || *end || fd < STANDARD_FDS ||
		    proc_link_read(root, pid, (int)fd, &link) || link.file != PROC_FILE_PIPE)
			continue;
		inodes[n++] = link.inode;
	}
	closedir(directory);
	if (n)
		qsort(inodes, n, sizeof(*inodes), compare_u64);
	for (size_t i = 0; i < n; i++)
		if (!i || inodes[i] != inodes[n_different - 1])
			inodes[n_different++] = inodes[i];
	*ret_n = n_different;
	return 0;
}

int proc_cpu_ns(pid_t pid, uint64_t *ret_ns)
{
	struct timespec time;
	clockid_t clock;
	int r = clock_getcpuclockid(pid, &clock);

	if (r != 0)
		return -r;
	if (clock_gettime(clock, &time))
		return errno == EINVAL ? -ESRCH : -errno; /* EINVAL: the process has ended */
	*ret_ns = (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
	return 0;
}
