/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Python stack of another process's main thread, read from its memory. This takes no more privilege than
 * a debugger needs (the same user, and a kernel that permits it) and does not stop the process. Because it
 * runs meanwhile, a walk can end early or find frames that are just being left.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PYTHON_STACK_FRAMES_MAX 512

struct python_stack;

/* root is "/proc"; borrowed. -ENOENT: the process does not have a Python of a known version, or not yet;
 * -EPERM: its memory is not ours to read; -ENOMEM. */
int python_stack_open(const char *root, pid_t pid, struct python_stack **ret_stack);
void python_stack_close(struct python_stack *stack); /* NULL is fine */

/* Takes the code objects of the frames, innermost first. Returns the number of frames, or -errno: the process
 * ended, became another program, or changed its stack meanwhile. */
ssize_t python_stack_walk(struct python_stack *stack, uint64_t codes[PYTHON_STACK_FRAMES_MAX]);

/* The file that a code object is from (its last characters if it is long), and the function's name, which is
 * qualified from Python 3.11 on, and whether it is a generator. 0 or -errno. */
int python_stack_name(struct python_stack *stack, uint64_t code, char *path, size_t path_size, char *function,
		      size_t function_size, bool *ret_generator);
