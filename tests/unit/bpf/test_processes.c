/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/symbols/elf_symbols.h"
#include "lib/clock.h"
#include "bpf/symbols/processes.h"

/* folder that looks like /proc */
static const char *root;

static void write_maps(int pid, const char *text)
{
	char name[32];

	snprintf(name, sizeof(name), "%d/maps", pid);
	write_text(root, name, text);
}

static void remove_maps(int pid)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%d/maps", root, pid);
	unlink(path);
	snprintf(path, sizeof(path), "%s/%d", root, pid);
	rmdir(path);
}

static int setup(void **state)
{
	int r = make_folder(state);

	root = *state;
	return r;
}

static const char maps[] = "1000-2000 r--p 00000000 08:01 5 /lib/liba.so.1\n"
			   "2000-4000 r-xp 00001000 08:01 5 /lib/liba.so.1\n"
			   "8000-9000 r-xp 00000000 00:00 0 \n"
			   "a000-b000 r-xp 00000000 08:01 6 /lib/libb.so (deleted)\n";

TEST(code_by_address)
{
	struct processes processes;

	assert_int_equal(processes_init(&processes, root), 0);
	write_maps(1, maps);
	struct process *process = processes_get(&processes, 1);
	const struct code_mapping *mapping = process_code(&processes, process, 0x2000, 1);
	assert_non_null(mapping);
	assert_string_equal(mapping->file->name, "liba.so.1");
	assert_int_equal(mapping->offset_bytes, 0x1000);
	assert_ptr_equal(process_code(&processes, process, 0x3fff, 2), mapping);
	assert_null(process_code(&processes, process, 0x4000, 3));
	assert_null(process_code(&processes, process, 0x1000, 4)); /* this mapping is data, not code */
	mapping = process_code(&processes, process, 0x8800, 5);
	assert_non_null(mapping);
	assert_null(mapping->file);
	assert_string_equal(process_code(&processes, process, 0xa000, 6)->file->name, "libb.so");
	processes_free(&processes);
}

/* Later mappings are found, but a process's maps are not read all the time. */
TEST(looks_again_now_and_then)
{
	struct processes processes;

	assert_int_equal(processes_init(&processes, root), 0);
	write_maps(1, maps);
	struct process *process = processes_get(&processes, 1);
	assert_null(process_code(&processes, process, 0xc000, NS_PER_S));
	write_maps(1, "c000-d000 r-xp 00000000 08:01 7 /lib/libc.so.6\n");
	assert_null(process_code(&processes, process, 0xc000, NS_PER_S + 1));
	assert_non_null(process_code(&processes, process, 0xc000, 2 * NS_PER_S));
	processes_free(&processes);
}

TEST(a_process_that_is_gone_is_as_its_parent)
{
	struct processes processes;

	assert_int_equal(processes_init(&processes, root), 0);
	write_maps(1, maps);
	assert_non_null(process_code(&processes, processes_get(&processes, 1), 0x2000, 1));
	processes_renew(&processes, 2, 1);
	struct process *child = processes_find(&processes, 2);
	assert_non_null(process_code(&processes, child, 0x2000, 2));
	/* After an exec, the child no longer has its parent's code. */
	processes_renew(&processes, 2, 0);
	assert_null(process_code(&processes, child, 0x2000, 3));
	/* The code of a process that has ended stays known. */
	remove_maps(1);
	assert_non_null(process_code(&processes, processes_find(&processes, 1), 0x2000, 10 * NS_PER_S));
	assert_null(process_code(&processes, processes_find(&processes, 1), 0xe000, 20 * NS_PER_S));
	assert_non_null(process_code(&processes, processes_find(&processes, 1), 0x2000, 30 * NS_PER_S));
	processes_free(&processes);
}

TEST(a_program_has_its_own_serial)
{
	struct processes processes;
	uint32_t serial;

	assert_int_equal(processes_init(&processes, root), 0);
	serial = processes_get(&processes, 3)->serial;
	assert_int_equal(processes_get(&processes, 3)->serial, serial);
	processes_renew(&processes, 3, 0);
	assert_int_not_equal(processes_get(&processes, 3)->serial, serial);
	assert_null(processes_find(&processes, 4));
	processes_free(&processes);
}

/* With an unlimited number of processes, the table keeps its size, and processes with samples stay. */
TEST(many_processes_do_not_grow_the_table)
{
	struct processes processes;

	assert_int_equal(processes_init(&processes, root), 0);
	processes_get(&processes, 7)->sample_ns = 5;
	for (uint32_t tgid = 100; tgid < 10000; tgid++)
		processes_renew(&processes, tgid, 7);
	assert_non_null(processes_find(&processes, 7));
	assert_non_null(processes_find(&processes, 9999));
	assert_true(processes.n < 2000);
	for (uint32_t tgid = 100; tgid < 10000; tgid++) {
		const struct process *process = processes_find(&processes, tgid);

		assert_true(!process || process->tgid == tgid);
	}
	processes_free(&processes);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
