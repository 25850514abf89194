/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#define FUTEX_WAIT_NR 455 /* SYS_futex_wait, of headers since Linux 6.7 */

enum call_kind call_kind_of(uint16_t nr)
{
	switch (nr) {
	case SYS_read:
	case SYS_readv:
	case SYS_pread64:
	case SYS_preadv:
	case SYS_preadv2:
	case SYS_sendfile: return CALL_READ;
	case SYS_write:
	case SYS_writev:
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_pwritev2: return CALL_WRITE;
#ifdef SYS_open
	case SYS_open:
#endif
	case SYS_openat:
	case SYS_openat2: return CALL_OPEN;
	case SYS_close: return CALL_CLOSE;
	case SYS_mmap: return CALL_MAP;
#ifdef SYS_newfstatat
	case SYS_newfstatat:
#endif
	case SYS_fstat:
	case SYS_statx: return CALL_STAT;
	case SYS_getdents64: return CALL_LIST;
#ifdef SYS_poll
	case SYS_poll:
#endif
	case SYS_ppoll: return CALL_POLL;
#ifdef SYS_select
	case SYS_select:
#endif
	case SYS_pselect6:
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
#endif
	case SYS_epoll_pwait: return CALL_WAIT_ANY;
	case SYS_connect:
	case SYS_accept:
	case SYS_accept4:
	case SYS_sendto:
	case SYS_recvfrom:
	case SYS_sendmsg:
	case SYS_recvmsg:
	case SYS_recvmmsg: return CALL_SOCKET;
	case SYS_fsync:
	case SYS_fdatasync:
	case SYS_sync_file_range:
	case SYS_msync: return CALL_SYNC;
#ifdef SYS_rename
	case SYS_rename:
#endif
#ifdef SYS_renameat
	case SYS_renameat:
#endif
	case SYS_renameat2: return CALL_RENAME;
	case SYS_wait4:
	case SYS_waitid: return CALL_CHILD;
	case SYS_io_uring_enter: return CALL_RING;
	case SYS_futex:
#ifdef SYS_futex_waitv
	case SYS_futex_waitv:
#endif
	case FUTEX_WAIT_NR: return CALL_FUTEX;
	case SYS_nanosleep:
	case SYS_clock_nanosleep: return CALL_NAP;
	default: return CALL_OTHER;
	}
}

static bool is_file(const struct timeline_call *call)
{
	return call->file_type == EVENT_FILE_REG || call->file_type == EVENT_FILE_BLK;
}

static bool opens_for_writing(const struct timeline_call *call)
{
	return (call->argument & O_ACCMODE) != O_RDONLY;
}

bool call_is_file_read(const struct timeline_call *call)
{
	switch (call->kind) {
	case CALL_READ: return is_file(call);
	case CALL_OPEN:
		return !opens_for_writing(call) && (is_file(call) || call->file_type == EVENT_FILE_DIR ||
						    call->file_type == EVENT_FILE_NONE);
	case CALL_STAT: return is_file(call) || call->file_type == EVENT_FILE_NONE;
	case CALL_LIST:
	case CALL_GROUP:
	case CALL_FAULT:
	case CALL_RING: return true;
	case CALL_WRITE:
	case CALL_CLOSE:
	case CALL_MAP:
	case CALL_POLL:
	case CALL_WAIT_ANY:
	case CALL_SOCKET:
	case CALL_SYNC:
	case CALL_RENAME:
	case CALL_CHILD:
	case CALL_FUTEX:
	case CALL_NAP:
	case CALL_OTHER: return false;
	}
	return false;
}

bool call_is_socket(const struct timeline_call *call)
{
	return (call->file_type == EVENT_FILE_SOCK && call->kind != CALL_GROUP) || call->kind == CALL_SOCKET;
}

bool call_is_poll(const struct timeline_call *call)
{
	return call->kind == CALL_POLL || call->kind == CALL_WAIT_ANY;
}

bool call_is_wait_any(const struct timeline_call *call)
{
	return call->kind == CALL_WAIT_ANY;
}

bool call_is_network(const struct timeline_call *call)
{
	return call->file_type == EVENT_FILE_SOCK && call->source == SOURCE_NETWORK;
}

bool call_is_pipe_read(const struct timeline_call *call)
{
	return call->file_type == EVENT_FILE_FIFO && call->kind == CALL_READ;
}

bool call_is_pipe_poll(const struct timeline_call *call)
{
	return call->file_type == EVENT_FILE_FIFO && call->kind == CALL_POLL;
}

bool call_is_pipe_write(const struct timeline_call *call)
{
	return call->file_type == EVENT_FILE_FIFO && call->kind == CALL_WRITE;
}

bool call_is_open_write(const struct timeline_call *call)
{
	return call->kind == CALL_OPEN && opens_for_writing(call) && call->result >= 0 &&
	       (is_file(call) || call->file_type == EVENT_FILE_NONE);
}

static bool call_is_open_read(const struct timeline_call *call)
{
	return call->kind == CALL_OPEN && !opens_for_writing(call) && call->result >= 0 &&
	       (is_file(call) || call->file_type == EVENT_FILE_NONE);
}

bool call_is_close(const struct timeline_call *call)
{
	return call->kind == CALL_CLOSE;
}

bool call_is_map(const struct timeline_call *call)
{
	return call->kind == CALL_MAP;
}

bool call_is_file_write(const struct timeline_call *call)
{
	return call->kind == CALL_WRITE && is_file(call);
}

bool call_is_sync(const struct timeline_call *call)
{
	return call->kind == CALL_SYNC;
}

bool call_is_rename(const struct timeline_call *call)
{
	return call->kind == CALL_RENAME;
}

bool call_is_lock_wait(const struct timeline_call *call)
{
	if (call->kind != CALL_FUTEX)
		return false;
	if (call->nr != SYS_futex)
		return true;
	switch (call->argument & FUTEX_CMD_MASK) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
	case FUTEX_LOCK_PI: return true;
	default: return false; /* the numbers come from the kernel, not from an enum of ours */
	}
}

bool call_is_lock_timed_wait(const struct timeline_call *call)
{
	return call->kind == CALL_FUTEX && call->nr == SYS_futex &&
	       (call->argument & ~(uint64_t)FUTEX_PRIVATE_FLAG) == FUTEX_WAIT_BITSET;
}

bool call_is_lock_wake(const struct timeline_call *call)
{
	return call->kind == CALL_FUTEX && call->nr == SYS_futex &&
	       (call->argument & FUTEX_CMD_MASK) == FUTEX_WAKE;
}

uint64_t call_read_bytes(const struct timeline_call *call)
{
	if (call->kind == CALL_GROUP)
		return (uint64_t)call->result;
	if (call->kind != CALL_READ || !is_file(call) || call->result < 0)
		return 0;
	return (uint64_t)call->result;
}

size_t call_opens(const struct timeline_call *call)
{
	return call->kind == CALL_GROUP ? call->n_opens : call_is_open_read(call);
}

static const char *describe_files(const struct timeline_call *call)
{
	switch (call->source) {
	case SOURCE_FUSE: return "reading files through FUSE";
	case SOURCE_NETWORK: return "reading files over the network";
	}
	return "reading files";
}

static const char *describe_read(const struct timeline_call *call)
{
	if (call->file_type == EVENT_FILE_FIFO)
		return "reading a pipe";
	return call->file_type == EVENT_FILE_SOCK ? "reading a socket" : describe_files(call);
}

const char *call_describe(const struct timeline_call *call)
{
	if (call_is_network(call))
		return "receiving from the network";
	switch (call->kind) {
	case CALL_READ: return describe_read(call);
	case CALL_WRITE: return call->file_type == EVENT_FILE_FIFO ? "writing a pipe" : "writing";
	case CALL_OPEN: return "opening files";
	case CALL_CLOSE: return "closing files";
	case CALL_MAP: return "mapping files";
	case CALL_STAT: return "looking files up";
	case CALL_LIST: return "listing folders";
	case CALL_POLL: return "polling";
	case CALL_WAIT_ANY: return "waiting for any of several files";
	case CALL_SOCKET: return "talking over a socket";
	case CALL_SYNC: return "syncing files";
	case CALL_RENAME: return "renaming files";
	case CALL_CHILD: return "waiting for a child process";
	case CALL_RING: return "waiting for io_uring";
	case CALL_FUTEX: return "waiting for a lock";
	case CALL_NAP: return "sleeping on purpose";
	case CALL_GROUP: return describe_files(call);
	case CALL_FAULT: return "reading mapped files";
	case CALL_OTHER: return "in another system call";
	}
	return "";
}
