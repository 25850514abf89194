/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/proc.h"

static const char *root;

static int setup(void **state)
{
	int r = make_folder(state);

	root = *state;
	return r;
}

#define STAT_REST                                                                                            \
	" S 1 40 40 0 -1 4194560 11 0 22 0 333 44 0 0 20 0 5 0 987654 1000000 77 18446744073709551615 0 0"

TEST(stat_forked_only)
{
	static const char *const rest = " 11 0 22 0 333 44 0 0 20 0 5 0 987654 1000000 77\n";
	struct proc_stat stat;
	char text[160];

	snprintf(text, sizeof(text), "42 (a) S 1 40 40 0 -1 4194624%s", rest);
	assert_int_equal(proc_stat_parse(text, &stat), 0);
	assert_true(stat.forked_only);
	assert_int_equal(stat.minor_faults, 11);
	snprintf(text, sizeof(text), "42 (kworker) S 1 40 40 0 -1 69238880%s", rest);
	assert_int_equal(proc_stat_parse(text, &stat), 0);
	assert_false(stat.forked_only);
}

TEST(stat_hostile_name)
{
	struct proc_stat stat;

	write_text(root, "42/stat", "42 (a) R 9 (b c)" STAT_REST "\n");
	assert_int_equal(proc_stat_read(root, 42, &stat), 0);
	assert_string_equal(stat.comm, "a) R 9 (b c");
	assert_int_equal(stat.pid, 42);
	assert_int_equal(stat.state, 'S');
	assert_int_equal(stat.parent, 1);
	assert_int_equal(stat.minor_faults, 11);
	assert_int_equal(stat.major_faults, 22);
	assert_int_equal(stat.user_ticks, 333);
	assert_int_equal(stat.system_ticks, 44);
	assert_int_equal(stat.n_threads, 5);
	assert_int_equal(stat.start_ticks, 987654);
	assert_false(stat.forked_only);
	assert_int_equal(stat.resident_pages, 77);
}

TEST(a_truncated_stat_line_is_never_overrun)
{
	static const char whole[] = "42 (python3)" STAT_REST;
	struct proc_stat stat = {.pid = -1};

	for (size_t length = 0; length < strlen("42 (python3) S 1 40 40 0 -1 4194560 11 0 22"); length++) {
		_cleanup_(freep) char *cut = strndup(whole, length);

		assert_int_equal(proc_stat_parse(cut, &stat), -EBADMSG);
		assert_int_equal(stat.pid, -1);
	}
	assert_int_equal(proc_stat_parse("", &stat), -EBADMSG);
	assert_int_equal(proc_stat_parse(")(", &stat), -EBADMSG);
	assert_int_equal(proc_stat_parse("1 )x(", &stat), -EBADMSG);
	assert_int_equal(proc_stat_read(root, 4711, &stat), -ENOENT);
}

TEST(status_has_ids_memory_and_switches)
{
	static const char text[] = "Name:\tUid:\\n\nTgid:\t41\nPid:\t42\nUid:\t1000\t1001\t1000\t1000\n"
				   "NSpid:\t42\t7\t3\nVmRSS:\t   2048 kB\nCapEff:\t000001fffeffffff\n"
				   "voluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t34\n";
	struct proc_status status;

	write_text(root, "42/status", text);
	assert_int_equal(proc_status_read(root, 42, &status), 0);
	assert_int_equal(status.tgid, 41);
	assert_int_equal(status.ns_pid, 3);
	assert_int_equal(status.uid, 1001);
	assert_int_equal(status.resident_bytes, 2048 * 1024);
	assert_true(status.effective_capabilities == 0x1fffeffffffULL);
	assert_int_equal(status.voluntary_switches, 12);
	assert_int_equal(status.forced_switches, 34);
	write_text(root, "42/status", "Tgid:\t1\n");
	assert_int_equal(proc_status_read(root, 42, &status), -EBADMSG);
	write_text(root, "42/status", "");
	assert_int_equal(proc_status_read(root, 42, &status), -EBADMSG);
}

TEST(cmdline_and_comm)
{
	char text[32];

	write_bytes(root, "42/cmdline", "python3\0-c\0a\nb\0", 15);
	assert_int_equal(proc_cmdline_read(root, 42, text, sizeof(text)), 0);
	assert_string_equal(text, "python3 -c a?b");
	assert_int_equal(proc_cmdline_read(root, 42, text, 4), 0);
	assert_string_equal(text, "pyt");
	write_text(root, "42/cmdline", "");
	assert_int_equal(proc_cmdline_read(root, 42, text, sizeof(text)), 0);
	assert_string_equal(text, "");
	write_text(root, "42/comm", "a b)c\n");
	assert_int_equal(proc_comm_read(root, 42, text, sizeof(text)), 0);
	assert_string_equal(text, "a b)c");
}

struct seen {
	size_t n;
	struct proc_mapping last;
	char path[64];
};

static int see(void *user, const struct proc_mapping *mapping)
{
	struct seen *seen = user;

	seen->n++;
	seen->last = *mapping;
	snprintf(seen->path, sizeof(seen->path), "%s", mapping->path);
	return 0;
}

TEST(mappings_keep_paths_with_spaces)
{
	struct seen seen = {0};

	write_text(root, "42/maps",
		   "7f00-7f10 rw-p 00000000 00:00 0 \n"
		   "7fb0-7fc0 r-xs 00001000 fe:12 5595748    /a dir/libtorch_cpu.so (deleted)\n");
	assert_int_equal(proc_mappings(root, 42, see, &seen), 0);
	assert_int_equal(seen.n, 2);
	assert_int_equal(seen.last.start, 0x7fb0);
	assert_int_equal(seen.last.end, 0x7fc0);
	assert_int_equal(seen.last.offset_bytes, 0x1000);
	assert_int_equal(seen.last.device, 0xfeULL << 20 | 0x12);
	assert_int_equal(seen.last.inode, 5595748);
	assert_true(seen.last.executable && seen.last.shared && seen.last.readable && !seen.last.writable);
	assert_string_equal(seen.path, "/a dir/libtorch_cpu.so (deleted)");
	write_text(root, "42/maps", "7f00-7f10 rw-p 00000000 00:00 0 \nrubbish\n");
	assert_int_equal(proc_mappings(root, 42, see, &seen), -EBADMSG);
	write_text(root, "42/maps", "7f00-7f10 rw");
	assert_int_equal(proc_mappings(root, 42, see, &seen), -EBADMSG);
}

TEST(octal_escapes_are_undone)
{
	char text[] = "/a\\040b\\011\\012\\134040", broken[] = "\\400\\08\\0x0\\07";

	proc_unescape(text);
	assert_string_equal(text, "/a b\t\n\\040");
	proc_unescape(broken);
	assert_string_equal(broken, "\\400\\08\\0x0\\07");
}

TEST(threads_children_and_processes_are_listed)
{
	_cleanup_(freep) pid_t *tids = NULL, *children = NULL, *processes = NULL;
	size_t n;

	write_text(root, "77/task/100/children", "9 8 ");
	write_text(root, "77/task/77/children", "");
	write_text(root, "77/task/78/children", "123\n");
	write_text(root, "77/task/self/children", "5");
	write_text(root, "8x/stat", "");
	assert_int_equal(proc_threads(root, 77, &tids, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(tids[0], 77);
	assert_int_equal(tids[2], 100);
	assert_int_equal(proc_children(root, 77, &children, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(children[0], 8);
	assert_int_equal(children[2], 123);
	assert_int_equal(proc_processes(root, &processes, &n), 0);
	assert_true(n >= 1);
	assert_int_equal(processes[n - 1], 77);
	assert_int_equal(proc_threads(root, 4711, &tids, &n), -ENOENT);
}

TEST(the_machine_s_ticks_and_memory_are_read)
{
	struct proc_cpu_ticks ticks;
	struct proc_meminfo memory;

	write_text(root, "stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 9 9 9 9 9 9 9 9\n");
	assert_int_equal(proc_cpu_ticks_read(root, &ticks), 0);
	assert_int_equal(ticks.user, 1);
	assert_int_equal(ticks.iowait, 5);
	assert_int_equal(ticks.steal, 8);
	write_text(root, "stat", "cpu  1 2 3");
	assert_int_equal(proc_cpu_ticks_read(root, &ticks), -EBADMSG);
	write_text(root, "meminfo",
		   "MemTotal:  100 kB\nMemFree: 50 kB\nMemAvailable: 60 kB\nSwapCached: 1 kB\n"
		   "Cached: 7 kB\nDirty: 3 kB\nWriteback: 2 kB\n");
	assert_int_equal(proc_meminfo_read(root, &memory), 0);
	assert_int_equal(memory.total_bytes, 100 * 1024);
	assert_int_equal(memory.available_bytes, 60 * 1024);
	assert_int_equal(memory.cached_bytes, 7 * 1024);
	write_text(root, "meminfo", "MemTotal: 1 kB\n");
	assert_int_equal(proc_meminfo_read(root, &memory), -EBADMSG);
}

TEST(the_real_proc_is_readable)
{
	struct proc_status status;
	struct proc_stat stat;
	struct seen seen = {0};

	assert_int_equal(proc_stat_read("/proc", getpid(), &stat), 0);
	assert_int_equal(stat.parent, getppid());
	assert_int_equal(proc_status_read("/proc", getpid(), &status), 0);
	assert_int_equal(status.uid, geteuid());
	assert_int_equal(proc_mappings("/proc", getpid(), see, &seen), 0);
	assert_true(seen.n > 5);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
