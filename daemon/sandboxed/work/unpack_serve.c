/* SPDX-License-Identifier: Apache-2.0 */
/* The helper's side of unpack.h: a loop in a sandbox. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset/compress.h"
#include "daemon/helpers/message.h"
#include "daemon/helpers/process.h"
#include "lib/huge_pages.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "lib/sandbox.h"
#include "unpack_message.h"

#define MEMORY_BYTES (UINT64_C(32) << 20)
/* CPU time limit, in case the reader was killed; otherwise it ends this process long before (unpack.c). */
#define CPU_S 300

struct here {
	int fd;
	const uint8_t *memory;
	uint64_t memory_bytes;
	uint8_t *space;
	struct decompressor *decompressor;
};

static int unpack(struct here *h, const struct unpack_run *run)
{
	uint64_t at = run->offset, to = 0;
	int r = run->n > UNPACK_MAX_BLOCKS || at > h->memory_bytes ? -EINVAL : 0;

	for (uint32_t i = 0; r == 0 && i < run->n; i++) {
		if (run->stored[i] > h->memory_bytes - at || run->plain[i] > UNPACK_SPACE_BYTES - to)
			return -EINVAL;
		r = decompressor_block(h->decompressor, h->space + to, run->plain[i], h->memory + at,
				       run->stored[i]);
		at += run->stored[i];
		to += run->plain[i];
	}
	return r;
}

static int send_message(const struct here *h, struct unpack_message m, const int *fd)
{
	return fd_message_send(h->fd, &m, sizeof(m), fd, fd ? 1 : 0, 0);
}

static int begin(struct here *h)
{
	struct unpack_message m;
	int fds[2], pidfd, r = message_receive(h->fd, &m, sizeof(m), 0, fds, 2);

	if (r < 0 || m.type != UNPACK_BEGIN || fds[1] < 0)
		return -EPROTO;
	h->memory_bytes = m.memory_bytes;
	h->memory = mmap(NULL, m.memory_bytes, PROT_READ, MAP_SHARED, fds[0], 0);
	h->space = mmap(NULL, UNPACK_SPACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
	pidfd = helper_own_pidfd();
	if (h->memory == MAP_FAILED || h->space == MAP_FAILED || pidfd < 0)
		return -ENOMEM;
	huge_leave_out_of_core(h->memory, m.memory_bytes);
	huge_leave_out_of_core(h->space, UNPACK_SPACE_BYTES);
	r = send_message(h, (struct unpack_message){.type = UNPACK_STARTED, .pid = (int32_t)getpid()},
			 &pidfd);
	if (r == 0)
		r = decompressor_new(&h->decompressor);
	/* Closes everything but its socket. */
	(void)kernel_close_range(0, (unsigned)h->fd - 1);
	(void)kernel_close_range((unsigned)h->fd + 1, UINT32_MAX);
	return r;
}

int unpack_serve(int fd)
{
	const struct sandbox_limits limits = {.memory_bytes = MEMORY_BYTES, .cpu_s = CPU_S, .serves = true};
	static struct here h;
	struct unpack_message m;
	int r;

	h.fd = fd;
	if (begin(&h) < 0)
		return 1;
	/* If the system refuses a sandbox, the daemon logs that once (opener.c). */
	(void)sandbox_enter(&limits);
	r = send_message(&h, (struct unpack_message){.type = UNPACK_READY}, NULL);
	while (r == 0 && (r = message_receive(fd, &m, sizeof(m), 0, NULL, 0)) == 0) {
		r = m.type != UNPACK_RUN ? -EPROTO : unpack(&h, &m.run);
		if (r != -EPROTO)
			r = send_message(&h, (struct unpack_message){.type = UNPACK_DONE, .result = r}, NULL);
	}
	return r == -ECONNRESET ? 0 : 1;
}
