/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An open library, for those who read other parts of it than symbols. */

#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>

struct symbol_file {
	int fd;
	Elf *elf;
	const char *soname; /* in the library's string table */
};

/* Address as linked -> offset in the file. code: of an executable segment only. -ENOEXEC. */
int symbol_file_offset(const struct symbol_file *file, uint64_t address, bool code, uint64_t *ret_offset);
