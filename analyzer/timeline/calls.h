/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Classifies the system calls of a training job. Syscall numbers are those of the analysing machine, which is
 * assumed to have the same architecture as the recording one. */

#include <stdbool.h>

#include "timeline.h"

/* Returns the kind of a system call, by its number. */
enum call_kind call_kind_of(uint16_t nr);

/* Returns true if the call reads or looks up data: read, pread, open for reading, stat and the like, of
 * regular files and folders, groups of these, io_uring. */
bool call_is_file_read(const struct timeline_call *call);

/* Returns true if the call sends or receives on a socket, or waits for one. */
bool call_is_socket(const struct timeline_call *call);

/* Returns true for poll, select and epoll. */
bool call_is_poll(const struct timeline_call *call);

/* Returns true for select and epoll, which wait for one of several descriptors; which one is not known. */
bool call_is_wait_any(const struct timeline_call *call);

/* Returns true for a call on a socket of IPv4 or IPv6. */
bool call_is_network(const struct timeline_call *call);

/* Returns true for read and readv of a pipe. */
bool call_is_pipe_read(const struct timeline_call *call);
/* Returns true for poll and ppoll on one pipe; with select and epoll the awaited file is not known. */
bool call_is_pipe_poll(const struct timeline_call *call);
bool call_is_pipe_write(const struct timeline_call *call);

/* Returns true for an open that may write; its result is the descriptor. */
bool call_is_open_write(const struct timeline_call *call);
/* Returns true for mmap of a file. */
bool call_is_map(const struct timeline_call *call);
bool call_is_close(const struct timeline_call *call);
/* Returns true for a write to a regular file; its result is in bytes. */
bool call_is_file_write(const struct timeline_call *call);
/* Returns true for fsync, fdatasync, sync_file_range and msync. */
bool call_is_sync(const struct timeline_call *call);
bool call_is_rename(const struct timeline_call *call);
/* Returns true for a futex call that sleeps until the word is woken or a time passes; inode is the word's
 * address. */
bool call_is_lock_wait(const struct timeline_call *call);
/* Returns true for a futex wait with a timeout on the monotonic clock; locks without a timeout name the other
 * clock. */
bool call_is_lock_timed_wait(const struct timeline_call *call);
/* Returns true for a futex call that wakes sleepers; its result is their number. */
bool call_is_lock_wake(const struct timeline_call *call);

/* Returns the number of files that the call or the group opened for reading. */
size_t call_opens(const struct timeline_call *call);

/* Returns the bytes that a read of a file, or a group of calls, returned; 0 for other calls. */
uint64_t call_read_bytes(const struct timeline_call *call);

/* Returns a description for people: "reading files", "opening files", ... */
const char *call_describe(const struct timeline_call *call);
