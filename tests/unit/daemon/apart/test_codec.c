/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders that were taken over: what they answer is not believed where it does not fit the order. The
 * processes are stand-ins, and so is the nursery that forks them. */
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codec.h"
#include "codec_message.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"

#define BATCH 4

static int receive(int fd, void *message, size_t bytes, int *ret_fd)
{
	int fds[FD_MESSAGE_MAX_FDS];
	size_t n_fds;
	int r = fd_message_receive(fd, message, bytes, 0, fds, &n_fds);

	*ret_fd = r > 0 && n_fds > 0 ? fds[0] : -EBADF;
	return r;
}

#define WORK_NS (20 * NS_PER_MS)

/* Takes WORK_NS of CPU time. */
static void work(void)
{
	struct timespec t;

	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	while ((uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec < WORK_NS);
}

/* Says that it is ready, works, and answers each order with `answer`; NULL: ends instead. */
static void decoder(int fd, const struct codec_done *answer)
{
	struct codec_message m, ready = {.type = CODEC_READY, .pid = getpid()}, done = {.type = CODEC_DONE};
	int theirs, pidfd = kernel_pidfd_open(getpid());

	if (answer)
		done.done = *answer;

	if (receive(fd, &m, sizeof(m), &theirs) <= 0 ||
	    fd_message_send(fd, &ready, sizeof(ready), &pidfd, 1, 0) < 0)
		_exit(1);
	while (receive(fd, &m, sizeof(m), &theirs) > 0) {
		if (m.type != CODEC_ORDER)
			continue;
		work();
		if (!answer)
			break;
		(void)fd_message_send(fd, &done, sizeof(done), NULL, 0, 0);
	}
	_exit(0);
}

static void nursery(int fd, const struct codec_done *answer)
{
	uint32_t kind;
	int theirs;

	signal(SIGCHLD, SIG_IGN);
	while (receive(fd, &kind, sizeof(kind), &theirs) > 0) {
		if (fork() == 0) {
			close(fd);
			decoder(theirs, answer);
		}
		close(theirs);
	}
	_exit(0);
}

/* What becomes of an order for items 1 to 3 that is answered so. */
static int decode(const struct codec_done *answer, struct codec_result *ret_result)
{
	const struct recipe recipe = {
	    .kind = RECIPE_IMAGE, .width = 2, .height = 2, .filter = RECIPE_BILINEAR};
	const struct ring_layout layout = ring_layout(BATCH, (uint32_t)recipe_item_bytes(&recipe));
	const struct codec_work work = {.first = 1, .end = 3};
	struct nursery n = NURSERY_NONE;
	struct codecs *codecs;
	struct ring_item *items;
	int fds[2], slots_fd = memfd_create("slots", MFD_CLOEXEC), r;

	assert_null(recipe_check(&recipe));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	n.fd = fds[0];
	n.pid = fork();
	if (n.pid == 0) {
		close(fds[0]);
		nursery(fds[1], answer);
	}
	close(fds[1]);
	assert_int_equal(ftruncate(slots_fd, (off_t)layout.slot_bytes), 0);
	items = mmap(NULL, layout.slot_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);
	assert_true(items != MAP_FAILED);
	for (int i = 0; i < BATCH; i++)
		items[i].location = UINT64_C(1) << 32;
	assert_int_equal(
	    codecs_new(&n, &recipe, 1, &layout, 1, BATCH, (uint8_t *)items, slots_fd, 1, &codecs), 0);
	r = codecs_decode(codecs, &work, ret_result);
	codecs_free(codecs);
	close(n.fd);
	assert_int_equal(waitpid(n.pid, NULL, 0), n.pid);
	munmap(items, layout.slot_bytes);
	close(slots_fd);
	return r;
}

static void test_answers_that_fit(void **state)
{
	const struct codec_done all = {.next = 3}, damaged = {.status = -EBADMSG, .next = 2, .item = 2};
	struct codec_result result;

	assert_int_equal(decode(&all, &result), 0);
	assert_int_equal(result.next, 3);
	assert_int_equal(decode(&damaged, &result), -EBADMSG);
	assert_int_equal(result.item, 2);
}

static void test_answers_that_do_not(void **state)
{
	static const struct codec_done answers[] = {
	    {.status = -EBADMSG, .next = 1, .item = 3},          /* behind the order */
	    {.status = -EBADMSG, .next = 1, .item = UINT32_MAX}, /* behind all memory */
	    {.next = 3, .n_damaged = 1, .item = 1u << 30},       /* the same, in passing */
	    {.next = 1},                                         /* nothing was done: for ever */
	    {.next = 0},                                         /* what was done is undone */
	    {.next = 4},                                         /* more than was asked for */
	    {.next = 3, .n_damaged = 3, .item = 1},              /* the same */
	    {.status = 1, .next = 3},
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct codec_result result;

		assert_int_equal(decode(&answers[i], &result), -EBADMSG);
		assert_int_equal(result.item, 1);
		assert_string_equal(result.error.text, "it ends the processes that are to decode it");
	}
}

/* Nobody asks a decoder what it took. */
static void test_cpu_time(void **state)
{
	const struct codec_done all = {.next = 3}, damaged = {.next = 3, .n_damaged = 1, .item = 2};
	struct codec_result result;

	assert_int_equal(decode(&all, &result), 0);
	assert_true(result.cpu_ns >= WORK_NS);
	assert_int_equal(result.n_damaged, 0);
	assert_int_equal(result.n_replaced, 0);
	assert_int_equal(decode(&damaged, &result), 0);
	assert_int_equal(result.n_damaged, 1);
	/* Ends with each order: three tries, and all three are paid for. */
	assert_int_equal(decode(NULL, &result), -EBADMSG);
	assert_true(result.cpu_ns >= 3 * WORK_NS);
	assert_int_equal(result.n_damaged, 1);
	assert_int_equal(result.n_replaced, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_answers_that_fit),
	    cmocka_unit_test(test_answers_that_do_not),
	    cmocka_unit_test(test_cpu_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
