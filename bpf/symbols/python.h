/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPython from outside: where a version keeps its frames, and what a code object is called. Offsets are those
 * of CPython's own headers, 3.8 to 3.12; 3.13 tells them itself (_Py_DebugOffsets). Other versions are
 * refused: wrong offsets would give wrong names.
 *
 * Memory of the process is read, never changed; it may hold anything and change meanwhile.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "stack_sample.h"

struct python {
	struct python_layout layout;
	uint32_t code_filename, code_qualname; /* in PyCodeObject */
	uint32_t ascii_bytes, compact_bytes;   /* headers of str objects: pure ASCII, others */
};

/* Reads memory of a process: 0 or -errno; all or nothing. */
typedef int python_read(void *user, uint64_t address, void *data, size_t size);

/* process_vm_readv. user: pid_t *. */
int python_read_process(void *user, uint64_t address, void *data, size_t size);

/* What a version keeps where. runtime: address of _PyRuntime; version: 0x030b for 3.11.
 * -ENOTSUP: a version that is not known; else what read gave. */
int python_describe(uint32_t version, uint64_t runtime, python_read *read, void *user,
		    struct python *ret_python);

/* "libpython3.9.so.1.0", "python3.9" -> 0x0309; 0: no such name. */
uint32_t python_version_of_name(const char *name);

/* The file, its last characters if it is long, and the function: qualified from 3.11 on. -EFAULT and the
 * like: not there (any more); -EBADMSG: no code object. */
int python_code_path(const struct python *python, uint64_t code, python_read *read, void *user, char *path,
		     size_t path_size, char *function, size_t function_size);

/* The same with the file's name without folders. */
int python_code_name(const struct python *python, uint64_t code, python_read *read, void *user, char *file,
		     size_t file_size, char *function, size_t function_size);
