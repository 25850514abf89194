/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Python stack of another process's main thread, read through its memory from outside: with no privilege
 * beyond that of a debugger (the same user, and a kernel that allows it), and without stopping it. The
 * process may run meanwhile, so a walk can end early, or find frames that are just being left.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PYTHON_STACK_FRAMES_MAX 512

struct python_stack;

/* root: "/proc"; borrowed. -ENOENT: no Python of a known version is in the process, or not yet; -EPERM: its
 * memory is not ours to read; -ENOMEM. */
int python_stack_open(const char *root, pid_t pid, struct python_stack **ret_stack);
void python_stack_close(struct python_stack *stack); /* NULL is fine */

/* The code objects of the frames, innermost first. The number of frames, or -errno: the process ended or has
 * become another program, or changed its stack under our eyes. */
ssize_t python_stack_walk(struct python_stack *stack, uint64_t codes[PYTHON_STACK_FRAMES_MAX]);

/* The file a code object is from, its last characters if it is long, and the function's name: qualified from
 * Python 3.11 on. 0 or -errno. */
int python_stack_name(struct python_stack *stack, uint64_t code, char *path, size_t path_size, char *function,
		      size_t function_size);
