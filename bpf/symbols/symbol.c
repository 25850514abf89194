/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "symbol_private.h"

int symbol_file_offset(const struct symbol_file *file, uint64_t address, bool code, uint64_t *ret_offset)
{
	size_t n;

	if (elf_getphdrnum(file->elf, &n))
		return -ENOEXEC;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr header;

		if (!gelf_getphdr(file->elf, (int)i, &header) || header.p_type != PT_LOAD ||
		    (code && !(header.p_flags & PF_X)))
			continue;
		if (address >= header.p_vaddr && address - header.p_vaddr < header.p_filesz) {
			*ret_offset = address - header.p_vaddr + header.p_offset;
			return 0;
		}
	}
	return -ENOEXEC;
}

static int search_table(Elf *elf, Elf_Scn *section, const GElf_Shdr *header, const char *prefix, bool exact,
			uint64_t *ret_address)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t length = strlen(prefix);

	if (!data || !header->sh_entsize)
		return -ENOEXEC;
	for (size_t i = 0; i < header->sh_size / header->sh_entsize; i++) {
		const char *name;
		GElf_Sym symbol;

		if (!gelf_getsym(data, (int)i, &symbol))
			return -ENOEXEC;
		if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF)
			continue;
		name = elf_strptr(elf, header->sh_link, symbol.st_name);
		if (name && (exact ? !strcmp(name, prefix) : !strncmp(name, prefix, length))) {
			*ret_address = symbol.st_value;
			return 0;
		}
	}
	return -ENOENT;
}

static int find_address(Elf *elf, const char *prefix, bool exact, uint64_t *ret_address)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header))
			return -ENOEXEC;
		if (header.sh_type == SHT_DYNSYM)
			return search_table(elf, section, &header, prefix, exact, ret_address);
	}
	return -ENOENT;
}

/* Returns true for what the kernel's uprobes emulate on x86: push r64 (50..57, or 41 50..57), nop (90), call
 * and jump (e8, e9, eb), short conditional jump (70..7f). */
static bool is_cheap(const uint8_t *code)
{
	if (code[0] == 0x90 || code[0] == 0xe8 || code[0] == 0xe9 || code[0] == 0xeb ||
	    (code[0] & 0xf0) == 0x70)
		return true;
	if (code[0] == 0x41)
		code++;
	return (code[0] & 0xf8) == 0x50;
}

/* Bytes of an instruction after which stack, arguments and what is left to execute are as at the entry:
 * endbr64, or cmpb $value,offset(%rdi). 0: not known to be one. */
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

static const char *find_soname(Elf *elf)
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;
	Elf_Data *data;

	while ((section = elf_nextscn(elf, section))) {
		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_DYNAMIC)
			continue;
		data = elf_getdata(section, NULL);
		if (!data || !header.sh_entsize)
			return "";
		for (size_t i = 0; i < header.sh_size / header.sh_entsize; i++) {
			const char *name;
			GElf_Dyn entry;

			if (!gelf_getdyn(data, (int)i, &entry))
				return "";
			if (entry.d_tag != DT_SONAME)
				continue;
			name = elf_strptr(elf, header.sh_link, entry.d_un.d_val);
			return name ? name : "";
		}
	}
	return "";
}

int symbol_file_open(int fd, struct symbol_file **ret_file)
{
	struct symbol_file *file;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOEXEC;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->fd = fd;
	/* ELF_C_READ, because a mapping would kill us if the job cut the file short. */
	file->elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!file->elf || elf_kind(file->elf) != ELF_K_ELF) {
		symbol_file_close(file);
		return -ENOEXEC;
	}
	file->soname = find_soname(file->elf);
	*ret_file = file;
	return 0;
}

struct symbol_file *symbol_file_close(struct symbol_file *file)
{
	if (!file)
		return NULL;
	if (file->elf)
		elf_end(file->elf);
	free(file);
	return NULL;
}

const char *symbol_file_soname(const struct symbol_file *file)
{
	return file->soname;
}

int symbol_file_find(const struct symbol_file *file, const char *prefix, bool exact, uint64_t *ret_offset,
		     bool *ret_cheap)
{
	uint64_t address, offset;
	bool cheap;
	int r;

	r = find_address(file->elf, prefix, exact, &address);
	if (r < 0)
		return r;
	r = symbol_file_offset(file, address, true, &offset);
	if (r < 0)
		return r;
	*ret_offset = skip_harmless(file->fd, offset, &cheap);
	if (ret_cheap)
		*ret_cheap = cheap;
	return 0;
}

int symbol_find(int fd, const char *prefix, bool exact, uint64_t *ret_offset)
{
	struct symbol_file *file;
	int r = symbol_file_open(fd, &file);

	if (r < 0)
		return r;
	r = symbol_file_find(file, prefix, exact, ret_offset, NULL);
	symbol_file_close(file);
	return r;
}
