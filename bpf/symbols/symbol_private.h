/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An open library, for code that reads other parts of it than symbols. */

#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>

struct symbol_file {
	int fd;
	Elf *elf;
	const char *soname; /* in the library's string table */
};

/* Turns an address as linked into an offset in the file. code: only executable segments count. -ENOEXEC. */
int symbol_file_offset(const struct symbol_file *file, uint64_t address, bool code, uint64_t *ret_offset);
