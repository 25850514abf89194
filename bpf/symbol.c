/* SPDX-License-Identifier: Apache-2.0 */
#include "symbol.h"

#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

static void elf_endp(Elf **elf)
{
	if (*elf)
		elf_end(*elf);
}

/* Address as linked -> offset in the file. */
static int file_offset(Elf *elf, uint64_t address, uint64_t *ret_offset)
{
	size_t n;

	if (elf_getphdrnum(elf, &n))
		return -ENOEXEC;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr header;

		if (!gelf_getphdr(elf, (int)i, &header) || header.p_type != PT_LOAD ||
		    !(header.p_flags & PF_X))
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

/* x86: push r64 (50..57, or 41 50..57) and nop (90) are emulated by the kernel's uprobes. */
static bool is_cheap(const uint8_t *code)
{
	if (code[0] == 0x41)
		code++;
	return (code[0] & 0xf8) == 0x50 || code[0] == 0x90;
}

static uint64_t skip_endbr(int fd, uint64_t offset)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	uint8_t code[8];

	if (pread(fd, code, sizeof(code), (off_t)offset) != sizeof(code))
		return offset;
	if (memcmp(code, endbr64, sizeof(endbr64)) || !is_cheap(code + sizeof(endbr64)))
		return offset;
	return offset + sizeof(endbr64);
}

int symbol_find(int fd, const char *prefix, bool exact, uint64_t *ret_offset)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	uint64_t address, offset;
	int r;

	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOEXEC;
	elf = elf_begin(fd, ELF_C_READ_MMAP, NULL);
	if (!elf || elf_kind(elf) != ELF_K_ELF)
		return -ENOEXEC;
	r = find_address(elf, prefix, exact, &address);
	if (r)
		return r;
	r = file_offset(elf, address, &offset);
	if (r)
		return r;
	*ret_offset = skip_endbr(fd, offset);
	return 0;
}
