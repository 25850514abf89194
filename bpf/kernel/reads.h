/* SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* Counts bytes that the job received by read calls, io_uring and the network, and records its waits until
 * written bytes are stored. */

#include "calls.h"
#include "pages.h"

/* Opcodes of io_uring, linux/io_uring.h. */
#define RING_READV          1
#define RING_READ_FIXED     4
#define RING_RECVMSG        10
#define RING_READ           22
#define RING_RECV           27
#define RING_READ_MULTISHOT 49

static __always_inline void count_ring_read(struct member *member, struct file *file, int32_t bytes)
{
	struct inode *inode = BPF_CORE_READ(file, f_inode);
	struct file_use *use;

	if (BPF_CORE_READ(inode, i_mode) >> 12 != S_IFREG)
		return;
	use = use_of(member, inode, BPF_CORE_READ(inode, i_ino), BPF_CORE_READ(inode, i_sb, s_dev));
	use->n_reads++;
	use->used_bytes += bytes;
	if (BPF_CORE_READ(file, f_flags) & O_DIRECT)
		use->direct_bytes += bytes;
	else
		use->accessed_pages += pages_of(bytes);
	size_count(use, bytes);
	use_age(use, bpf_ktime_get_ns());
}

static __always_inline int count_ring(struct member *member, struct io_kiocb *kiocb, int32_t bytes)
{
	if (bytes < 0)
		return 0;
	switch (BPF_CORE_READ(kiocb, opcode)) {
	case RING_READV:
	case RING_READ_FIXED:
	case RING_READ:
	case RING_READ_MULTISHOT: count_ring_read(member, BPF_CORE_READ(kiocb, file), bytes); break;
	case RING_RECV:
	case RING_RECVMSG:
		if (!member->use.since_ns)
			member->use.since_ns = bpf_ktime_get_ns();
		member->use.network_bytes += bytes;
		break;
	}
	return 0;
}

/* Runs in a thread of the job: the submitting thread, the ring's own, or one of the ring's workers. */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(io_uring_complete, struct io_ring_ctx *ring, void *request, struct io_uring_cqe *cqe)
{
	struct member *member = member_of(bpf_get_current_task_btf());

	return member && request ? count_ring(member, request, cqe->res) : 0;
}

/* Before Linux 6.14. */
SEC("?tp_btf/io_uring_complete")
int BPF_PROG(io_uring_complete_old, void *ring, void *request, uint64_t user_data, int32_t result)
{
	struct member *member = member_of(bpf_get_current_task_btf());

	return member && request ? count_ring(member, request, result) : 0;
}

static __always_inline int waits_for_writeback(void)
{
	struct member *member = member_of(bpf_get_current_task_btf());

	if (member)
		member->writeback = 1;
	return 0;
}

SEC("?tp_btf/balance_dirty_pages")
int balance_dirty_pages(void *ctx)
{
	return waits_for_writeback();
}

SEC("?tp_btf/folio_wait_writeback")
int folio_wait_writeback(void *ctx)
{
	return waits_for_writeback();
}
