/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reads untrusted ELF files, which may also change while they are read. All data is copied out of the file
 * before it is parsed: a mapping would raise SIGBUS if the file was truncated, and data that is read twice
 * can differ. Sizes are checked against the file, and against limits that real libraries keep, before memory
 * is allocated.
 */

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct elf_file {
	int fd; /* the caller's */
	uint64_t bytes;
	Elf64_Phdr *segments;
	Elf64_Shdr *sections;
	size_t n_segments, n_sections;
};

/* Reads the headers of a 64-bit ELF file of this machine's byte order. fd stays the caller's and must
 * outlive *ret_file. -ENOEXEC: not a regular file, not such an ELF file, or a file with more
 * headers than any library has; -ENOMEM. */
int elf_file_open(int fd, struct elf_file *ret_file);
void elf_file_close(struct elf_file *file);

/* Returns the first section of a type (SHT_*) and, if name is not NULL, of this name; NULL if there is none.
 */
const Elf64_Shdr *elf_file_section(const struct elf_file *file, uint32_t type, const char *name);
/* Returns the section with this index (such as another section's sh_link) if it has this type, else NULL. */
const Elf64_Shdr *elf_file_linked(const struct elf_file *file, uint32_t index, uint32_t type);

/* Copies a section, followed by a NUL that *ret_bytes does not count. Returns NULL if it is compressed, not
 * all in the file, or larger than a real library's, and without memory. The caller frees the copy. */
void *elf_file_read(const struct elf_file *file, const Elf64_Shdr *section, size_t *ret_bytes);

/* Returns the text at an offset of a copied string table, or NULL if it begins behind the end. */
const char *elf_text(const char *strings, size_t n_bytes, uint64_t at);

/* Turns an address as linked into an offset in the file. code: only executable segments count. -ENOEXEC. */
int elf_file_offset(const struct elf_file *file, uint64_t address, bool code, uint64_t *ret_offset);

/* One note of a copied section of notes. */
struct elf_note {
	uint32_t type;
	const char *name, *data;
	size_t name_bytes, data_bytes;
};

/* Reads the note at *at and advances *at. Returns false at the end, or if a note is truncated. */
bool elf_note_next(const char *notes, size_t n_bytes, size_t *at, struct elf_note *ret_note);
