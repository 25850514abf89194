/* SPDX-License-Identifier: Apache-2.0 */
#include "elf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"

#define HEADERS_MAX 4096

/* Returns the largest section of a type that is read, in bytes. PyTorch 2.14's largest library has 2 MB of
 * exported symbols, with 5 MB of names, and 34 sections; files of debug symbols are ten times as large. */
static uint64_t section_max(uint32_t type)
{
	switch (type) {
	case SHT_SYMTAB:
	case SHT_STRTAB: return UINT64_C(64) << 20;
	case SHT_DYNSYM: return UINT64_C(16) << 20;
	default: return UINT64_C(1) << 20;
	}
}

static bool read_all(int fd, void *data, size_t bytes, uint64_t offset)
{
	size_t done;

	return fd_read_at(fd, data, bytes, offset, &done) == 0 && done == bytes;
}

/* Copies `bytes` bytes at an offset into new memory with a NUL behind them; NULL if the file has fewer. */
static void *copy_of(const struct elf_file *file, uint64_t offset, size_t bytes)
{
	_cleanup_(freep) char *copy = NULL;

	if (offset > file->bytes || bytes > file->bytes - offset)
		return NULL;
	copy = malloc(bytes + 1);
	if (!copy || !read_all(file->fd, copy, bytes, offset))
		return NULL;
	copy[bytes] = '\0';
	return steal_pointer(copy);
}

int elf_file_open(int fd, struct elf_file *ret_file)
{
	struct elf_file file = {.fd = fd};
	struct stat info;
	Elf64_Ehdr head;

	if (fstat(fd, &info) || !S_ISREG(info.st_mode) || !read_all(fd, &head, sizeof(head), 0) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_ident[EI_DATA] != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB))
		return -ENOEXEC;
	file.bytes = (uint64_t)info.st_size;
	if (head.e_phnum > HEADERS_MAX || head.e_shnum > HEADERS_MAX ||
	    (head.e_phnum && head.e_phentsize != sizeof(Elf64_Phdr)) ||
	    (head.e_shnum && head.e_shentsize != sizeof(Elf64_Shdr)))
		return -ENOEXEC;
	file.segments = copy_of(&file, head.e_phoff, head.e_phnum * sizeof(Elf64_Phdr));
	file.sections = copy_of(&file, head.e_shoff, head.e_shnum * sizeof(Elf64_Shdr));
	if (!file.segments || !file.sections) {
		elf_file_close(&file);
		return -ENOEXEC;
	}
	file.n_segments = head.e_phnum;
	file.n_sections = head.e_shnum;
	*ret_file = file;
	return 0;
}

void elf_file_close(struct elf_file *file)
{
	free(file->segments);
	free(file->sections);
	*file = (struct elf_file){.fd = -1};
}

/* Returns a copy of the names of all sections, or NULL. */
static char *names_read(const struct elf_file *file, size_t *ret_bytes)
{
	Elf64_Ehdr head;
	const Elf64_Shdr *names;

	if (!read_all(file->fd, &head, sizeof(head), 0))
		return NULL;
	names = elf_file_linked(file, head.e_shstrndx, SHT_STRTAB);
	return names ? elf_file_read(file, names, ret_bytes) : NULL;
}

const Elf64_Shdr *elf_file_section(const struct elf_file *file, uint32_t type, const char *name)
{
	size_t n_bytes = 0;
	_cleanup_(freep) char *names = name ? names_read(file, &n_bytes) : NULL;

	for (size_t i = 0; i < file->n_sections; i++) {
		const Elf64_Shdr *section = &file->sections[i];
		const char *own = names ? elf_text(names, n_bytes, section->sh_name) : NULL;

		if (section->sh_type == type && (!name || (own && !strcmp(own, name))))
			return section;
	}
	return NULL;
}

const Elf64_Shdr *elf_file_linked(const struct elf_file *file, uint32_t index, uint32_t type)
{
	return index < file->n_sections && file->sections[index].sh_type == type ? &file->sections[index]
										 : NULL;
}

void *elf_file_read(const struct elf_file *file, const Elf64_Shdr *section, size_t *ret_bytes)
{
	void *copy;

	if (section->sh_flags & SHF_COMPRESSED || section->sh_type == SHT_NOBITS ||
	    section->sh_size > section_max(section->sh_type))
		return NULL;
	copy = copy_of(file, section->sh_offset, section->sh_size);
	if (copy)
		*ret_bytes = section->sh_size;
	return copy;
}

const char *elf_text(const char *strings, size_t n_bytes, uint64_t at)
{
	return at < n_bytes ? strings + at : NULL;
}

int elf_file_offset(const struct elf_file *file, uint64_t address, bool code, uint64_t *ret_offset)
{
	for (size_t i = 0; i < file->n_segments; i++) {
		const Elf64_Phdr *segment = &file->segments[i];

		if (segment->p_type != PT_LOAD || (code && !(segment->p_flags & PF_X)))
			continue;
		if (address >= segment->p_vaddr && address - segment->p_vaddr < segment->p_filesz) {
			*ret_offset = address - segment->p_vaddr + segment->p_offset;
			return 0;
		}
	}
	return -ENOEXEC;
}

static size_t padded(uint32_t bytes)
{
	return ((size_t)bytes + 3) & ~(size_t)3;
}

bool elf_note_next(const char *notes, size_t n_bytes, size_t *at, struct elf_note *ret_note)
{
	size_t left = *at < n_bytes ? n_bytes - *at : 0, name, data;
	Elf64_Nhdr header;

	if (left < sizeof(header))
		return false;
	memcpy(&header, notes + *at, sizeof(header));
	left -= sizeof(header);
	name = padded(header.n_namesz);
	data = padded(header.n_descsz);
	if (name > left || header.n_descsz > left - name)
		return false;
	*ret_note = (struct elf_note){.type = header.n_type,
				      .name = notes + *at + sizeof(header),
				      .name_bytes = header.n_namesz,
				      .data = notes + *at + sizeof(header) + name,
				      .data_bytes = header.n_descsz};
	*at += sizeof(header) + name + data; /* the padding of the last note may be missing */
	return true;
}
