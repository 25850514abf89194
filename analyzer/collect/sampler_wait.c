/* SPDX-License-Identifier: Apache-2.0 */
#include "sampler_wait.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* The numbers are those of the running kernel, because a sampler samples its own machine. */
#define NR_FUTEX_WAITV 449
#define NR_FUTEX_WAIT  455

enum rule_kind {
	RULE_READ,  /* descriptor in the first argument */
	RULE_WRITE, /* the first argument is a descriptor, too */
	RULE_POLL,  /* array and its length */
	RULE_LOCK,  /* futex: operation and timeout */
	RULE_PLAIN, /* the number of the call is sufficient */
};

struct call_rule {
	uint16_t nr;
	uint8_t kind;
	uint8_t wait; /* enum proc_wait, with RULE_PLAIN */
};

static const struct call_rule rules[] = {
    {SYS_read, RULE_READ, 0},
    {SYS_pread64, RULE_READ, 0},
    {SYS_readv, RULE_READ, 0},
    {SYS_preadv, RULE_READ, 0},
    {SYS_preadv2, RULE_READ, 0},
    {SYS_write, RULE_WRITE, 0},
    {SYS_pwrite64, RULE_WRITE, 0},
    {SYS_writev, RULE_WRITE, 0},
    {SYS_pwritev, RULE_WRITE, 0},
#ifdef SYS_poll /* newer architectures have only ppoll; the same applies to the other calls below */
    {SYS_poll, RULE_POLL, 0},
    {SYS_open, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_stat, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_lstat, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_access, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_select, RULE_PLAIN, PROC_WAIT_POLL},
    {SYS_epoll_wait, RULE_PLAIN, PROC_WAIT_POLL},
    {SYS_rename, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
#endif
    {SYS_ppoll, RULE_POLL, 0},
    {SYS_openat, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_newfstatat, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_statx, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_fstat, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_getdents64, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_lseek, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_readahead, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_fadvise64, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_madvise, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_sendfile, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_io_getevents, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_io_uring_enter, RULE_PLAIN, PROC_WAIT_FILE_READ},
    {SYS_pselect6, RULE_PLAIN, PROC_WAIT_POLL},
    {SYS_epoll_pwait, RULE_PLAIN, PROC_WAIT_POLL},
    {SYS_renameat2, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_fsync, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_fdatasync, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_sync_file_range, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_syncfs, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_msync, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_ftruncate, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_fallocate, RULE_PLAIN, PROC_WAIT_FILE_WRITE},
    {SYS_futex, RULE_LOCK, PROC_WAIT_FUTEX},
    {NR_FUTEX_WAITV, RULE_PLAIN, PROC_WAIT_FUTEX},
    {NR_FUTEX_WAIT, RULE_PLAIN, PROC_WAIT_FUTEX},
    {SYS_nanosleep, RULE_PLAIN, PROC_WAIT_TIMER},
    {SYS_clock_nanosleep, RULE_PLAIN, PROC_WAIT_TIMER},
    {SYS_wait4, RULE_PLAIN, PROC_WAIT_CHILD},
    {SYS_waitid, RULE_PLAIN, PROC_WAIT_CHILD},
    {SYS_ioctl, RULE_PLAIN, PROC_WAIT_DEVICE},
    {SYS_recvfrom, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_recvmsg, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_recvmmsg, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_sendto, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_sendmsg, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_accept, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_accept4, RULE_PLAIN, PROC_WAIT_SOCKET},
    {SYS_connect, RULE_PLAIN, PROC_WAIT_SOCKET},
};

static enum proc_wait wait_at(const char *root, pid_t tgid, int fd, bool writes, uint32_t *ret_inode)
{
	struct proc_link link;

	if (proc_link_read(root, tgid, fd, &link))
		return PROC_WAIT_UNKNOWN; /* closed since, or permission denied */
	*ret_inode = (uint32_t)link.inode;
	switch (link.file) {
	case PROC_FILE_REGULAR: return writes ? PROC_WAIT_FILE_WRITE : PROC_WAIT_FILE_READ;
	case PROC_FILE_PIPE: return writes ? PROC_WAIT_PIPE_WRITE : PROC_WAIT_PIPE;
	case PROC_FILE_SOCKET: return PROC_WAIT_SOCKET;
	case PROC_FILE_DEVICE: return PROC_WAIT_DEVICE;
	case PROC_FILE_OTHER: break;
	}
	return PROC_WAIT_OTHER;
}

/* The only descriptor of a poll is in the other process's memory. */
static enum proc_wait wait_in_poll(const char *root, pid_t tgid, const struct proc_syscall *call,
				   uint32_t *ret_inode)
{
	struct pollfd polled;
	struct iovec here = {&polled, sizeof(polled)};
	struct iovec there = {(void *)(uintptr_t)call->args[0], sizeof(polled)};
	enum proc_wait wait;

	if (!call->args[1])
		return PROC_WAIT_TIMER;
	if (call->args[1] > 1 || process_vm_readv(tgid, &here, 1, &there, 1, 0) != sizeof(polled))
		return PROC_WAIT_POLL;
	wait = wait_at(root, tgid, polled.fd, !(polled.events & POLLIN), ret_inode);
	return wait == PROC_WAIT_UNKNOWN ? PROC_WAIT_POLL : wait;
}

enum proc_wait sampler_wait(const char *root, pid_t tgid, const struct proc_syscall *call,
			    uint32_t *ret_inode)
{
	*ret_inode = 0;
	if (!call->in_call)
		return PROC_WAIT_FILE_READ; /* a page fault on a mapped file or on swapped-out memory */
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		if (rules[i].nr != call->nr)
			continue;
		switch ((enum rule_kind)rules[i].kind) {
		case RULE_READ: return wait_at(root, tgid, (int)call->args[0], false, ret_inode);
		case RULE_WRITE: return wait_at(root, tgid, (int)call->args[0], true, ret_inode);
		case RULE_LOCK: return call->args[3] ? PROC_WAIT_TIMED_LOCK : PROC_WAIT_FUTEX;
		case RULE_POLL: return wait_in_poll(root, tgid, call, ret_inode);
		case RULE_PLAIN: return (enum proc_wait)rules[i].wait;
		}
	}
	return PROC_WAIT_OTHER;
}
