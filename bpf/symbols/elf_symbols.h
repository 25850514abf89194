/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names of the functions in an ELF file. Files belong to the job and may hold any bytes, which may change
 * while they are read. So nothing is mapped, and sizes are limited and checked against the file.
 */

#include <stdint.h>
#include <stdio.h>

struct elf_symbols;

/* Takes over fd, also on failure; it must be open for reading. debug_root is where separate symbol files are,
 * such as
 * "/usr/lib/debug"; NULL: nowhere. A file without symbols is fine. -ENOEXEC: not an ELF file of this
 * machine's word size, or a broken one; -ENOMEM; -EIO. */
int elf_symbols_open(int fd, const char *debug_root, struct elf_symbols **ret_symbols);
void elf_symbols_close(struct elf_symbols *symbols);

/* Finds the function that covers this offset in the file. -ENOENT: none is known. */
int elf_symbols_function(struct elf_symbols *symbols, uint64_t file_offset, char *name, size_t size);

/* Finds an exported variable relative to the byte at file_offset. The loader keeps their distance: the
 * variable's address is that byte's address + *ret_distance. -ENOENT. */
int elf_symbols_distance(struct elf_symbols *symbols, const char *variable, uint64_t file_offset,
			 int64_t *ret_distance);
