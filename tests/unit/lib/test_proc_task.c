/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/proc_task.h"

TEST(schedstat_has_time_and_slices)
{
	struct proc_schedstat stat = {0};

	assert_int_equal(proc_schedstat_parse("10886232 10435 2\n", &stat), 0);
	assert_int_equal(stat.exec_ns, 10886232);
	assert_int_equal(stat.queue_ns, 10435);
	assert_int_equal(stat.n_slices, 2);
	assert_int_equal(proc_schedstat_parse("10886232 10435", &stat), -EBADMSG);
	assert_int_equal(proc_schedstat_parse("", &stat), -EBADMSG);
	assert_int_equal(stat.n_slices, 2); /* unchanged */
}

TEST(a_syscall_line_is_parsed)
{
	struct proc_syscall call;

	assert_int_equal(proc_syscall_parse("running\n", &call), 0);
	assert_true(call.running);
	assert_false(call.in_call || call.ended);
	assert_int_equal(
	    proc_syscall_parse("230 0x1 0x2 0x7ffe8198f040 0x0 0x0 0xffffffffffffffff 0x7ffe8198f028 "
			       "0x7f95f9723503\n",
			       &call),
	    0);
	assert_true(call.in_call);
	assert_int_equal(call.nr, 230);
	assert_int_equal(call.args[1], 2);
	assert_true(call.args[5] == UINT64_MAX);
	/* A thread that is asleep in a page fault, and a zombie. */
	assert_int_equal(proc_syscall_parse("-1 0x7ffe8198f028 0x7f95f9723503\n", &call), 0);
	assert_false(call.in_call || call.running || call.ended);
	assert_int_equal(proc_syscall_parse("-1 0x0 0x0\n", &call), 0);
	assert_true(call.ended);
}

TEST(damaged_syscall_lines_are_refused)
{
	static const char *const texts[] = {"",          "x",          "99999999999999999999 0x0",
					    "7 0x1 0x2", "-2 0x1 0x1", "70000 0x1 0x1 0x1 0x1 0x1 0x1"};
	struct proc_syscall call;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		assert_int_equal(proc_syscall_parse(texts[i], &call), -EBADMSG);
}

TEST(io_counts_are_parsed)
{
	struct proc_io io;

	assert_int_equal(proc_io_parse("rchar: 47816\nwchar: 5\nsyscr: 39\nsyscw: 1\nread_bytes: 4096\n"
				       "write_bytes: 8192\ncancelled_write_bytes: 0\n",
				       &io),
			 0);
	assert_int_equal(io.read_chars, 47816);
	assert_int_equal(io.written_chars, 5);
	assert_int_equal(io.n_reads, 39);
	assert_int_equal(io.n_writes, 1);
	assert_int_equal(io.read_bytes, 4096);
	assert_int_equal(io.write_bytes, 8192);
	assert_int_equal(proc_io_parse("rchar: 47816\nwchar: 5\n", &io), -EBADMSG);
}

/* The names are from Linux 4.19, 5.10, 5.15, 6.1, 6.8 and 6.18. */
TEST(wait_channels_of_many_kernels_are_known)
{
	static const struct {
		const char *name;
		enum proc_wait wait;
	} cases[] = {
	    {"pipe_read", PROC_WAIT_PIPE},
	    {"anon_pipe_read", PROC_WAIT_PIPE},
	    {"pipe_wait", PROC_WAIT_PIPE},
	    {"pipe_wait_readable", PROC_WAIT_PIPE},
	    {"pipe_write", PROC_WAIT_PIPE_WRITE},
	    {"poll_schedule_timeout.constprop.0", PROC_WAIT_POLL},
	    {"do_sys_poll", PROC_WAIT_POLL},
	    {"ep_poll", PROC_WAIT_POLL},
	    {"futex_wait_queue_me", PROC_WAIT_FUTEX},
	    {"futex_do_wait", PROC_WAIT_FUTEX},
	    {"hrtimer_nanosleep", PROC_WAIT_TIMER},
	    {"do_nanosleep", PROC_WAIT_TIMER},
	    {"do_wait", PROC_WAIT_CHILD},
	    {"folio_wait_bit_common", PROC_WAIT_FILE_READ},
	    {"wait_on_page_bit", PROC_WAIT_FILE_READ},
	    {"io_schedule", PROC_WAIT_FILE_READ},
	    {"filemap_get_pages", PROC_WAIT_FILE_READ},
	    {"folio_wait_writeback", PROC_WAIT_FILE_WRITE},
	    {"jbd2_log_wait_commit", PROC_WAIT_FILE_WRITE},
	    {"ext4_sync_file", PROC_WAIT_FILE_WRITE},
	    {"balance_dirty_pages", PROC_WAIT_FILE_WRITE},
	    {"unix_stream_read_generic", PROC_WAIT_SOCKET},
	    {"sk_wait_data", PROC_WAIT_SOCKET},
	    {"inet_csk_accept", PROC_WAIT_SOCKET},
	    {"sigsuspend", PROC_WAIT_OTHER},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		if (proc_wchan_wait(cases[i].name, false) != cases[i].wait)
			fail_msg("%s is %d", cases[i].name, (int)proc_wchan_wait(cases[i].name, false));
	/* The wait channel is hidden. */
	assert_int_equal(proc_wchan_wait("0", false), PROC_WAIT_UNKNOWN);
	assert_int_equal(proc_wchan_wait("", false), PROC_WAIT_UNKNOWN);
	assert_int_equal(proc_wchan_wait("0", true), PROC_WAIT_FILE_READ);
}

TEST_IN_FOLDER(links_tell_kind_and_inode)
{
	static const struct {
		const char *link;
		struct proc_link expected;
	} cases[] = {
	    {"pipe:[1164567]", {PROC_FILE_PIPE, 1164567}}, {"socket:[9]", {PROC_FILE_SOCKET, 9}},
	    {"/data/train/0.jpg", {PROC_FILE_REGULAR, 0}}, {"/dev/shm/torch_1", {PROC_FILE_REGULAR, 0}},
	    {"/dev/nvidia0", {PROC_FILE_DEVICE, 0}},       {"anon_inode:[eventfd]", {PROC_FILE_OTHER, 0}},
	};
	_cleanup_(freep) char *path = path_in(*state, "77/fd/3");
	struct proc_link link;

	make_folders(*state, "77/fd");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(symlink(cases[i].link, path), 0);
		assert_int_equal(proc_link_read(*state, 77, 3, &link), 0);
		assert_int_equal(link.file, cases[i].expected.file);
		assert_int_equal(link.inode, cases[i].expected.inode);
		unlink(path);
	}
}

/* Lists the pipes above standard error, each once and in order, in a tree like /proc. */
TEST_IN_FOLDER(pipes_of_a_fixture)
{
	const char *root = *state;
	char path[256];
	static const struct {
		const char *fd, *link;
	} links[] = {{"0", "pipe:[1]"},           {"3", "pipe:[900]"}, {"4", "pipe:[700]"},
		     {"12", "pipe:[900]"},        {"5", "/dev/null"},  {"6", "socket:[700]"},
		     {"notanumber", "pipe:[800]"}};
	struct proc_link link;
	uint64_t inodes[8];
	size_t n;

	make_folders(root, "77/fd");
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		snprintf(path, sizeof(path), "%s/77/fd/%s", root, links[i].fd);
		assert_int_equal(symlink(links[i].link, path), 0);
	}
	assert_int_equal(proc_pipes(root, 77, inodes, 8, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(inodes[0], 700);
	assert_int_equal(inodes[1], 900);
	assert_int_equal(proc_link_read(root, 77, 6, &link), 0);
	assert_int_equal(link.file, PROC_FILE_SOCKET);
	assert_int_equal(proc_link_read(root, 77, 60, &link), -ENOENT);
	assert_int_equal(proc_pipes(root, 78, inodes, 8, &n), -ENOENT);
}

TEST(cpu_time_of_a_process_grows)
{
	uint64_t first, second;

	assert_int_equal(proc_cpu_ns(getpid(), &first), 0);
	for (volatile int i = 0; i < 1000000; i++)
		;
	assert_int_equal(proc_cpu_ns(getpid(), &second), 0);
	assert_true(second > first);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(proc_cpu_ns(pid, &first), -ESRCH);
}
