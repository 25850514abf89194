/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_file.h"
#include "lib/cleanup.h"
#include "symbol_private.h"

/* Reads a table of symbols or the dynamic section, and the strings to which it refers. */
static void *table_read(const struct elf_file *elf, uint32_t type, size_t *ret_bytes, char **ret_strings,
			size_t *ret_n_strings)
{
	const Elf64_Shdr *section = elf_file_section(elf, type, NULL);
	const Elf64_Shdr *strings = section ? elf_file_linked(elf, section->sh_link, SHT_STRTAB) : NULL;
	_cleanup_(freep) void *table = strings ? elf_file_read(elf, section, ret_bytes) : NULL;

	*ret_strings = table ? elf_file_read(elf, strings, ret_n_strings) : NULL;
	return *ret_strings ? steal_pointer(table) : NULL;
}

static int find_address(const struct symbol_file *file, const char *prefix, bool exact, uint64_t *ret_address)
{
	size_t length = strlen(prefix);

	for (size_t i = 0; i < file->n_symbols; i++) {
		const Elf64_Sym *symbol = &file->symbols[i];
		const char *name = elf_text(file->strings, file->n_strings, symbol->st_name);

		if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || symbol->st_shndx == SHN_UNDEF || !name)
			continue;
		if (exact ? !strcmp(name, prefix) : !strncmp(name, prefix, length)) {
			*ret_address = symbol->st_value;
			return 0;
		}
	}
	return -ENOENT;
}

/* Returns true for instructions that the kernel's uprobes emulate on x86: push r64 (50..57, or 41 50..57),
 * nop (90), call and jump (e8, e9, eb), short conditional jump (70..7f). */
static bool is_cheap(const uint8_t *code)
{
	if (code[0] == 0x90 || code[0] == 0xe8 || code[0] == 0xe9 || code[0] == 0xeb ||
	    (code[0] & 0xf0) == 0x70)
		return true;
	if (code[0] == 0x41)
		code++;
	return (code[0] & 0xf8) == 0x50;
}

/* Returns the length of an instruction after which the stack, the arguments and the rest of the function
 * are as at the entry: endbr64, or cmpb $value,offset(%rdi). 0: not such an instruction. */
static size_t harmless_length(const uint8_t *code)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa}, compare[] = {0x80, 0x7f};

	return memcmp(code, endbr64, sizeof(endbr64)) && memcmp(code, compare, sizeof(compare)) ? 0 : 4;
}

static uint64_t skip_harmless(int fd, uint64_t offset, bool *ret_cheap)
{
	uint8_t code[8];
	size_t length;

	*ret_cheap = false;
	if (pread(fd, code, sizeof(code), (off_t)offset) != sizeof(code))
		return offset;
	*ret_cheap = is_cheap(code);
	length = harmless_length(code);
	if (length == 0 || !is_cheap(code + length))
		return offset;
	*ret_cheap = true;
	return offset + length;
}

static char *soname_read(const struct elf_file *elf)
{
	_cleanup_(freep) char *strings = NULL;
	_cleanup_(freep) Elf64_Dyn *entries = NULL;
	size_t n_bytes = 0, n_strings = 0;

	entries = table_read(elf, SHT_DYNAMIC, &n_bytes, &strings, &n_strings);
	for (size_t i = 0; entries && i < n_bytes / sizeof(*entries); i++) {
		const char *name = entries[i].d_tag == DT_SONAME
				       ? elf_text(strings, n_strings, entries[i].d_un.d_val)
				       : NULL;

		if (name)
			return strdup(name);
	}
	return strdup("");
}

int symbol_file_open(int fd, struct symbol_file **ret_file)
{
	struct symbol_file *file = calloc(1, sizeof(*file));
	int r;

	if (!file)
		return -ENOMEM;
	r = elf_file_open(fd, &file->elf);
	if (r == 0) {
		file->soname = soname_read(&file->elf);
		r = file->soname ? 0 : -ENOMEM;
	}
	if (r < 0) {
		symbol_file_close(file);
		return r;
	}
	*ret_file = file;
	return 0;
}

struct symbol_file *symbol_file_close(struct symbol_file *file)
{
	if (!file)
		return NULL;
	elf_file_close(&file->elf);
	free(file->symbols);
	free(file->strings);
	free(file->soname);
	free(file);
	return NULL;
}

const char *symbol_file_soname(const struct symbol_file *file)
{
	return file->soname;
}

/* Most files are opened for their name only. */
static int symbols_read(struct symbol_file *file)
{
	size_t n_bytes = 0;

	if (file->symbols)
		return 0;
	file->symbols = table_read(&file->elf, SHT_DYNSYM, &n_bytes, &file->strings, &file->n_strings);
	file->n_symbols = n_bytes / sizeof(Elf64_Sym);
	if (file->symbols)
		return 0;
	return elf_file_section(&file->elf, SHT_DYNSYM, NULL) ? -ENOEXEC : -ENOENT;
}

int symbol_file_find(struct symbol_file *file, const char *prefix, bool exact, uint64_t *ret_offset,
		     bool *ret_cheap)
{
	uint64_t address, offset;
	bool cheap;
	int r;

	r = symbols_read(file);
	if (r == 0)
		r = find_address(file, prefix, exact, &address);
	if (r == 0)
		r = elf_file_offset(&file->elf, address, true, &offset);
	if (r < 0)
		return r;
	*ret_offset = skip_harmless(file->elf.fd, offset, &cheap);
	if (ret_cheap)
		*ret_cheap = cheap;
	return 0;
}
