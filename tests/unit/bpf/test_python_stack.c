/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the stack of a real Python process, also with pointers that lead anywhere. */
#include "tests/unit/test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf/python_stack.h"
#include "lib/clock.h"
#include "bpf/symbols/processes.h"

#define PYTHON "/usr/bin/python3"
#define DEPTH  100 /* more than a page of frames, which are read together */

/* Starts a process with DEPTH nested functions, of which the innermost one sleeps. */
static pid_t start(void)
{
	static const char script[] = "import sys, time\n"
				     "def f(n):\n"
				     "    if n > 1:\n"
				     "        f(n - 1)\n"
				     "    sys.stdout.write('r')\n"
				     "    sys.stdout.flush()\n"
				     "    time.sleep(600)\n"
				     "f(100)\n";
	int ends[2];
	char ready;

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		close(ends[1]);
		execl(PYTHON, PYTHON, "-c", script, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (read(ends[0], &ready, 1) != 1) {
		printf("skipped: there is no " PYTHON "\n");
		exit(77);
	}
	close(ends[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static uint64_t read_u64(pid_t pid, uint64_t address)
{
	uint64_t value;

	assert_int_equal(python_read_process(pid, address, &value, sizeof(value)), 0);
	return value;
}

static void write_u64(pid_t pid, uint64_t address, uint64_t value)
{
	struct iovec here = {&value, sizeof(value)};
	struct iovec there = {(void *)(uintptr_t)address, sizeof(value)};

	assert_int_equal(process_vm_writev(pid, &here, 1, &there, 1, 0), sizeof(value));
}

static struct python_layout layout_of(pid_t pid)
{
	struct processes processes;
	struct python_layout layout;

	assert_int_equal(processes_init(&processes, "/proc"), 0);
	struct process *process = processes_get(&processes, (uint32_t)pid);
	assert_non_null(process);
	if (!process_python(&processes, process, clock_monotonic_ns())) {
		printf("skipped: the version of " PYTHON " is not known\n");
		end(pid);
		exit(77);
	}
	layout = process->python.layout;
	processes_free(&processes);
	return layout;
}

/* Returns the innermost frame of the only thread. */
static uint64_t innermost(pid_t pid, const struct python_layout *layout)
{
	uint64_t at = read_u64(pid, layout->runtime + layout->interpreters_head);

	at = read_u64(pid, at + layout->threads_head);
	at = read_u64(pid, at + layout->thread_frame);
	return layout->has_holder ? read_u64(pid, at + layout->holder_frame) : at;
}

TEST(a_frame_may_point_anywhere)
{
	pid_t pid = start();
	const struct python_layout layout = layout_of(pid);
	uint64_t codes[PYTHON_STACK_FRAMES_MAX];
	struct python_stack *stack;
	int r = python_stack_open("/proc", pid, &stack);

	if (r == -EPERM) {
		printf("skipped: the memory of another process may not be read here\n");
		end(pid);
		exit(77);
	}
	assert_int_equal(r, 0);
	const uint64_t frame = innermost(pid, &layout), previous = frame + layout.frame_previous,
		       was = read_u64(pid, previous);

	assert_true(python_stack_walk(stack, codes) >= DEPTH);
	for (uint64_t i = 0; i < 512; i++) {
		const uint64_t places[] = {UINT64_MAX - i,
					   i,
					   frame + i,
					   frame - i,
					   (frame & ~UINT64_C(4095)) + i,
					   (frame & ~UINT64_C(4095)) - i,
					   INT64_MAX - i,
					   (UINT64_C(1) << 47) - i};

		for (size_t k = 0; k < sizeof(places) / sizeof(places[0]); k++) {
			write_u64(pid, previous, places[k]);
			assert_true(python_stack_walk(stack, codes) <= PYTHON_STACK_FRAMES_MAX);
		}
	}
	write_u64(pid, previous, was);
	assert_true(python_stack_walk(stack, codes) >= DEPTH);
	python_stack_close(stack);
	end(pid);
}
