/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Python stack of another process's main thread, read from its memory. This takes no more privilege than
 * a debugger needs (the same user, and a kernel that permits it) and does not stop the process. The process
 * keeps running, so a walk can end early or find frames that are just returning.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PYTHON_STACK_FRAMES_MAX 512

struct python_stack;

/* Opens a process for walks. root is "/proc"; borrowed. -ENOENT: the process has no Python of a known
 * version, or not yet; -EPERM: we may not read its memory; -ENOMEM. */
int python_stack_open(const char *root, pid_t pid, struct python_stack **ret_stack);
void python_stack_close(struct python_stack *stack); /* accepts NULL */

/* Reads the code objects of the frames, innermost first. Returns the number of frames, or -errno: the
 * process ended, became another program, or changed its stack during the walk. */
ssize_t python_stack_walk(struct python_stack *stack, uint64_t codes[PYTHON_STACK_FRAMES_MAX]);

/* Reads the file that a code object is from (the end of its path if it is long), the function's name, which
 * is qualified from Python 3.11 on, and whether it is a generator. 0 or -errno. */
int python_stack_name(struct python_stack *stack, uint64_t code, char *path, size_t path_size, char *function,
		      size_t function_size, bool *ret_generator);
