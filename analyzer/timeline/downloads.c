/* SPDX-License-Identifier: Apache-2.0 */
#include "downloads.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>

#include "calls.h"
#include "lib/sorted.h"

#define RECEIVED_MIN_BYTES 1024
#define RECEIVED_FACTOR    4 /* minimum ratio of bytes received to bytes sent */

struct traffic {
	uint64_t inode;
	uint64_t received_bytes, sent_bytes;
};

static uint64_t bytes_of(const struct timeline_call *call)
{
	return call->result > 0 && call->file_type == EVENT_FILE_SOCK ? (uint64_t)call->result : 0;
}

/* Return the bytes that passed through a socket; 0 for other calls and failed ones. */
static uint64_t call_received_bytes(const struct timeline_call *call)
{
	if (call->kind == CALL_READ || call->nr == SYS_recvfrom || call->nr == SYS_recvmsg)
		return bytes_of(call);
	return 0;
}

static uint64_t call_sent_bytes(const struct timeline_call *call)
{
	if (call->kind == CALL_WRITE || call->nr == SYS_sendto || call->nr == SYS_sendmsg)
		return bytes_of(call);
	return 0;
}

static int traffic_compare(const void *left, const void *right)
{
	const struct traffic *a = left, *b = right;

	return a->inode < b->inode ? -1 : a->inode > b->inode;
}

static size_t traffic_collect(const struct timeline_thread *thread, struct traffic *items)
{
	size_t n = 0, n_unique = 0;

	for (size_t i = 0; i < thread->n_calls; i++) {
		const struct timeline_call *call = &thread->calls[i];
		uint64_t received = call_received_bytes(call), sent = call_sent_bytes(call);

		if (!call->inode || (!received && !sent))
			continue;
		items[n++] = (struct traffic){call->inode, received, sent};
	}
	qsort(items, n, sizeof(*items), traffic_compare);
	for (size_t i = 0; i < n; i++) {
		if (n_unique && items[n_unique - 1].inode == items[i].inode) {
			items[n_unique - 1].received_bytes += items[i].received_bytes;
			items[n_unique - 1].sent_bytes += items[i].sent_bytes;
		} else {
			items[n_unique++] = items[i];
		}
	}
	return n_unique;
}

int downloads_find(const struct timeline_thread *thread, struct downloads *ret_downloads)
{
	struct traffic *items = calloc(thread->n_calls + 1, sizeof(*items));
	struct downloads downloads = {0};
	size_t n;

	if (!items)
		return -ENOMEM;
	n = traffic_collect(thread, items);
	downloads.inodes = calloc(n + 1, sizeof(*downloads.inodes));
	if (!downloads.inodes) {
		free(items);
		return -ENOMEM;
	}
	for (size_t i = 0; i < n; i++)
		if (items[i].received_bytes >= RECEIVED_MIN_BYTES &&
		    items[i].received_bytes / RECEIVED_FACTOR >= items[i].sent_bytes)
			downloads.inodes[downloads.n++] = items[i].inode;
	free(items);
	*ret_downloads = downloads;
	return 0;
}

void downloads_free(struct downloads *downloads)
{
	free(downloads->inodes);
	*downloads = (struct downloads){0};
}

/* Returns true if the call is part of receiving data: a call on such a socket, or a wait for any of several
 * descriptors by a thread that has such sockets. */
static bool downloads_has(const struct downloads *downloads, const struct timeline_call *call)
{
	if (!downloads->n)
		return false;
	if (call_is_wait_any(call))
		return true;
	return call_is_socket(call) && bsearch(&call->inode, downloads->inodes, downloads->n,
					       sizeof(*downloads->inodes), compare_u64);
}

bool downloads_touches(const struct downloads *downloads, const struct timeline_call *call)
{
	return call_is_file_read(call) || (call_is_close(call) && call->file_type == EVENT_FILE_REG) ||
	       downloads_has(downloads, call);
}
