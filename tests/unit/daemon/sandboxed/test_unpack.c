/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that unpack blocks. Some are real, and others are stand-ins that crash, hang, or give any
 * answer. */
#include "tests/support.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dataset/compress.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "daemon/storage/shared_memory.h"
#include "daemon/sandboxed/work/unpack.h"
#include "daemon/sandboxed/work/unpack_message.h"

#define MEMORY_BYTES (1u << 20)
#define PLAIN_BYTES  (256u << 10)

/* How the next process behaves. */
enum kind { REAL, CRASHES, HANGS, SAYS_OTHER, NEVER_BEGINS, REFUSED };

static struct {
	struct shared_memory memory;
	struct unpackers *unpackers;
	enum kind kinds[8];
	uint32_t n_asked, n_kinds;
	struct unpack_run good, bad, old;
} t;

static void stand_in(int fd, enum kind kind)
{
	struct unpack_message m, started = {.type = UNPACK_STARTED, .pid = getpid()},
				 ready = {.type = UNPACK_READY}, other = {.type = UNPACK_DONE, .result = 7};
	int fds[FD_MESSAGE_MAX_FDS], pidfd = kernel_pidfd_open(getpid());
	size_t n_fds;

	if (kind == NEVER_BEGINS)
		_exit(1);
	if (fd_message_receive(fd, &m, sizeof(m), 0, fds, &n_fds) <= 0 ||
	    fd_message_send(fd, &started, sizeof(started), &pidfd, 1, 0) < 0 ||
	    fd_message_send(fd, &ready, sizeof(ready), NULL, 0, 0) < 0)
		_exit(1);
	while (fd_message_receive(fd, &m, sizeof(m), 0, fds, &n_fds) > 0) {
		if (kind == CRASHES)
			raise(SIGKILL);
		for (volatile int forever = 1; kind == HANGS && forever;)
			;
		(void)fd_message_send(fd, &other, sizeof(other), NULL, 0, 0);
	}
	_exit(0);
}

/* Sends a request as the daemon does. */
static void ask(void *user)
{
	enum kind kind = t.n_asked < t.n_kinds ? t.kinds[t.n_asked] : REAL;
	int ends[2];

	t.n_asked++;
	if (kind == REFUSED) {
		unpackers_add(t.unpackers, -EBADF);
		return;
	}
	socket_pair(ends);
	if (fork() == 0) {
		close(ends[0]);
		if (kind == REAL)
			_exit(unpack_serve(ends[1]));
		stand_in(ends[1], kind);
	}
	close(ends[1]);
	unpackers_add(t.unpackers, ends[0]);
}

static uint32_t put_block(struct compressor *c, uint64_t at, unsigned char with)
{
	unsigned char *plain = malloc(PLAIN_BYTES);

	memset(plain, with, PLAIN_BYTES);
	long n = compressor_block(c, t.memory.data + at, plain, PLAIN_BYTES);
	assert_true(n > 0);
	free(plain);
	return (uint32_t)n;
}

static int set_up(void **state)
{
	/* A frame of 262144 times 'A', as zstd 0.7 wrote it. */
	static const unsigned char old[] = {0x27, 0xb5, 0x2f, 0xfd, 0xa0, 0x00, 0x00, 0x04, 0x00, 0x81,
					    0x00, 0x00, 'A',  0x81, 0x00, 0x00, 'A',  0x81, 0x00, 0x00,
					    'A',  0x81, 0x00, 0x00, 'A',  0xc0, 0x00, 0x00};
	struct compressor *c;

	memset(&t, 0, sizeof(t));
	signal(SIGCHLD, SIG_IGN);
	assert_int_equal(shared_memory_new("test", MEMORY_BYTES, SHARED_MAPPABLE, &t.memory), 0);
	assert_int_equal(compressor_new(3, &c), 0);
	t.good = (struct unpack_run){.offset = 100, .n = 2, .plain = {PLAIN_BYTES, PLAIN_BYTES}};
	t.good.stored[0] = put_block(c, 100, 1);
	t.good.stored[1] = put_block(c, 100 + t.good.stored[0], 2);
	t.bad = t.good;
	t.bad.offset++;
	t.old = (struct unpack_run){
	    .offset = 8192, .n = 1, .plain = {PLAIN_BYTES}, .stored = {(uint32_t)sizeof(old)}};
	memcpy(t.memory.data + t.old.offset, old, sizeof(old));
	compressor_free(c);
	return 0;
}

static int tear_down(void **state)
{
	unpackers_free(t.unpackers);
	shared_memory_free(&t.memory);
	signal(SIGCHLD, SIG_DFL);
	return 0;
}

static void begin(uint32_t n_kinds, const enum kind *kinds)
{
	struct unpackers_options options = {.memory_fd = t.memory.fd,
					    .memory_bytes = MEMORY_BYTES,
					    .n_threads = 2,
					    .cpu_limit_ns = 100 * NS_PER_MS,
					    .ask = ask};

	if (n_kinds > 0)
		memcpy(t.kinds, kinds, n_kinds * sizeof(*kinds));
	t.n_kinds = n_kinds;
	assert_int_equal(shared_memory_reader(t.memory.fd, &options.memory_fd), 0);
	assert_int_equal(unpackers_new(&options, &t.unpackers), 0);
}

/* Unpacks one run by itself. Returns the result. */
static int run(const struct unpack_run *which, uint64_t *cpu_ns)
{
	struct unpacker *k = NULL;
	const uint8_t *plain = NULL;
	int r = unpackers_run(t.unpackers, &k, which, &plain, cpu_ns);

	if (r == 0) {
		assert_int_equal(plain[0], 1);
		assert_int_equal(plain[PLAIN_BYTES - 1], 1);
		assert_int_equal(plain[PLAIN_BYTES], 2);
		assert_int_equal(plain[2 * PLAIN_BYTES - 1], 2);
	}
	unpackers_give_back(t.unpackers, k);
	return r;
}

TEST_WITH(good_and_bad_runs_come_in_turns, set_up, tear_down)
{
	struct unpacker *k[2] = {NULL, NULL};
	const uint8_t *plain;
	uint64_t cpu_ns = 0;

	begin(0, NULL);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(run(&t.good, &cpu_ns), 0);
		assert_int_equal(run(&t.bad, &cpu_ns), -EBADMSG);
		/* libzstd would accept it. */
		assert_int_equal(run(&t.old, &cpu_ns), -EBADMSG);
	}
	assert_int_equal(t.n_asked, 1);
	assert_true(cpu_ns > 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(unpackers_run(t.unpackers, &k[i], &t.good, &plain, &cpu_ns), 0);
	assert_int_equal(t.n_asked, 2);
	for (int i = 0; i < 2; i++)
		unpackers_give_back(t.unpackers, k[i]);
}

TEST_WITH(a_run_whose_process_dies_is_done_again, set_up, tear_down)
{
	static const enum kind each[] = {CRASHES, NEVER_BEGINS, SAYS_OTHER};

	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		const enum kind kinds[] = {each[i], REAL};
		uint64_t cpu_ns = 0;

		begin(2, kinds);
		assert_int_equal(run(&t.good, &cpu_ns), 0);
		assert_int_equal(t.n_asked, 2);
		unpackers_free(t.unpackers);
		t.unpackers = NULL;
		t.n_asked = 0;
	}
}

/* A run whose processes end each time, or that takes too long, fails. Other runs continue. */
TEST_WITH(dies_or_hangs_each_time, set_up, tear_down)
{
	static const enum kind kinds[] = {CRASHES, CRASHES, HANGS, REAL};
	uint64_t cpu_ns = 0;

	begin(4, kinds);
	assert_int_equal(run(&t.good, &cpu_ns), -EBADMSG);
	assert_int_equal(t.n_asked, 2);
	cpu_ns = 0;
	assert_int_equal(run(&t.good, &cpu_ns), -EBADMSG);
	assert_int_equal(t.n_asked, 3);
	assert_true(cpu_ns >= 100 * NS_PER_MS); /* the time is charged to a user */
	assert_int_equal(run(&t.good, &cpu_ns), 0);
	assert_int_equal(t.n_asked, 4);
}

TEST_WITH(none_can_be_had, set_up, tear_down)
{
	static const enum kind kinds[] = {REFUSED, REAL};
	uint64_t cpu_ns = 0;

	begin(2, kinds);
	assert_int_equal(run(&t.good, &cpu_ns), -EAGAIN);
	assert_int_equal(run(&t.good, &cpu_ns), 0);
}
