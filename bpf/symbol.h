/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where in an ELF file a function begins, for a probe. Computed from the program headers: what libbpf 1.1
 * computes from sections is wrong for some layouts.
 */

#include <stdbool.h>
#include <stdint.h>

/* The file offset to probe of the first exported function whose name begins with prefix (exact: equals it).
 * An `endbr64` in front of a cheap instruction is skipped: a probe on endbr64 is single-stepped, 4 to 5 us a
 * call, one on push or nop is emulated, under 1 us. fd: the file, open for reading.
 * -ENOENT: not in there; -ENOEXEC: no ELF file, or a broken one. */
int symbol_find(int fd, const char *prefix, bool exact, uint64_t *ret_offset);
