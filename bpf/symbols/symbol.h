/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where in an ELF file a function begins, for a probe. Computed from the program headers: what libbpf 1.1
 * computes from sections is wrong for some layouts.
 */

#include <stdbool.h>
#include <stdint.h>

/* An open library. The descriptor stays the caller's and must outlive it. */
struct symbol_file;

/* -ENOEXEC: no ELF file, or a broken one; -ENOMEM. */
int symbol_file_open(int fd, struct symbol_file **ret_file);
struct symbol_file *symbol_file_close(struct symbol_file *file);

/* The name it was linked as (DT_SONAME): tells a copy under another name. "" where there is none. Valid until
 * the file is closed. */
const char *symbol_file_soname(const struct symbol_file *file);

/* The file offset to probe of the first exported function whose name begins with prefix (exact: equals it).
 * An `endbr64` in front of a cheap instruction is skipped: a probe on endbr64 is single-stepped, 4 to 5 us a
 * call, one on push, nop, call or jump is emulated, under 1 us. *ret_cheap (may be NULL): the kernel emulates
 * what is there. -ENOENT: not in there; -ENOEXEC: the file is broken. */
int symbol_file_find(const struct symbol_file *file, const char *prefix, bool exact, uint64_t *ret_offset,
		     bool *ret_cheap);

/* Open, find, close. */
int symbol_find(int fd, const char *prefix, bool exact, uint64_t *ret_offset);
