/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* An open library, for code that reads more of the file than its symbols. */

#include "elf_file.h"

struct symbol_file {
	struct elf_file elf;
	char *soname;
	Elf64_Sym *symbols; /* NULL: not read yet */
	size_t n_symbols;
	char *strings; /* names of the symbols */
	size_t n_strings;
};
