/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads CPython from outside: finds the frames of each version, and the name of a code object. For 3.8 to
 * 3.12 the offsets are those of CPython's own headers; 3.13 and 3.14 publish them (_Py_DebugOffsets). Other
 * versions, and those without the GIL, are refused, because wrong offsets would give wrong names.
 *
 * Memory of the process is read, never changed; it may hold anything, and change at any time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/shared/stack_sample.h"

struct python {
	struct python_layout layout;
	uint32_t code_filename, code_qualname, code_flags; /* in PyCodeObject */
	uint32_t ascii_bytes, compact_bytes;               /* headers of str objects: pure ASCII, others */
};

/* A process's memory. read() returns 0 or -errno, and reads all or nothing. */
struct python_memory {
	int (*read)(void *user, uint64_t address, void *data, size_t size);
	void *user;
};

/* Reads by process_vm_readv(), all or nothing. 0 or -errno. */
int python_read_process(pid_t pid, uint64_t address, void *data, size_t size);
/* The memory of this process; *pid must live as long as the result is used. */
struct python_memory python_memory_of(pid_t *pid);

/* Fills in the layout of a version. runtime is the address of _PyRuntime; version is 0x030b for 3.11.
 * -ENOTSUP: the version is not known; else the error of reading the memory. */
int python_describe(uint32_t version, uint64_t runtime, const struct python_memory *memory,
		    struct python *ret_python);

/* "libpython3.9.so.1.0", "python3.9" -> 0x0309; 0: no Python's name. */
uint32_t python_version_of_name(const char *name);

/* Texts of a code object. A long one is cut: its last characters are kept, whole ones. */
struct python_code {
	char path[256];
	char function[192]; /* qualified from 3.11 on */
	bool generator;     /* its frames run while a caller takes the next item */
};

/* Reads a code object. -EFAULT and the like: it is not (or no longer) there; -EBADMSG: not a code object. */
int python_code_read(const struct python *python, const struct python_memory *memory, uint64_t address,
		     struct python_code *ret_code);

/* The file's name without folders. */
const char *python_code_file(const struct python_code *code);
