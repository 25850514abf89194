/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finds the file offset of a function in an ELF file, for a probe. Uses program headers, because libbpf 1.1
 * uses sections and computes wrong offsets for some layouts.
 */

#include <stdbool.h>
#include <stdint.h>

/* An open library. The descriptor stays the caller's and must outlive it. */
struct symbol_file;

/* -ENOEXEC: no ELF file, or a broken one; -ENOMEM. */
int symbol_file_open(int fd, struct symbol_file **ret_file);
struct symbol_file *symbol_file_close(struct symbol_file *file);

/* Returns the library's DT_SONAME, which identifies a renamed copy; "": none. Valid until the file is
 * closed. */
const char *symbol_file_soname(const struct symbol_file *file);

/* Finds the file offset at which to probe the first exported function whose name begins with prefix
 * (exact: equals it). An endbr64 or a comparison in front of a cheap instruction is skipped, because a
 * probe on these is single-stepped, while one on push, nop, call or jump is emulated at a fraction of the
 * cost (docs/explanation/measuring-gpu.md). *ret_cheap (may be NULL): whether the kernel emulates the
 * instruction there. -ENOENT: no such function; -ENOEXEC: the file is broken. */
int symbol_file_find(struct symbol_file *file, const char *prefix, bool exact, uint64_t *ret_offset,
		     bool *ret_cheap);
