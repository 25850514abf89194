/* SPDX-License-Identifier: Apache-2.0 */
#include "elf_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/sorted.h"

#define SEGMENTS_MAX     16
#define TABLE_MAX_BYTES  (UINT64_C(64) << 20) /* 2.7 million symbols; no library comes near it */
#define BUILD_ID_MAX     64
#define NOTES_MAX_BYTES  4096
#define ASSEMBLY_MAX_GAP 4096 /* a function without a size reaches to the next symbol, but no further */

struct segment {
	uint64_t address, offset, bytes;
};

struct function {
	uint64_t address;
	uint32_t bytes;
	uint32_t name; /* offset in the string table */
};

/* One symbol table; names stay in the file until they are asked for. */
struct table {
	struct function *items; /* by address */
	size_t n;
	int fd; /* has the strings; -1: they are in the file itself */
	uint64_t strings_offset, strings_bytes;
	bool full; /* it is .symtab, which has the static functions too */
};

struct elf_symbols {
	int fd;
	struct segment segments[SEGMENTS_MAX];
	size_t n_segments;
	struct table table;
};

static void elf_endp(Elf **elf)
{
	if (*elf)
		elf_end(*elf);
}

static int function_compare(const void *left, const void *right)
{
	const struct function *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	/* If an address has several names, that of the longest function comes last and wins. */
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static int segments_read(Elf *elf, struct elf_symbols *symbols)
{
	size_t n;

	if (elf_getphdrnum(elf, &n))
		return -ENOEXEC;
	for (size_t i = 0; i < n && symbols->n_segments < SEGMENTS_MAX; i++) {
		GElf_Phdr header;

		if (!gelf_getphdr(elf, (int)i, &header))
			return -ENOEXEC;
		/* Only code: neighbouring segments share a page of the file, and only code is asked for. */
		if (header.p_type == PT_LOAD && header.p_flags & PF_X)
			symbols->segments[symbols->n_segments++] =
			    (struct segment){header.p_vaddr, header.p_offset, header.p_filesz};
	}
	return 0;
}

/* Finds the section of a type. Returns false if there is none, or it does not fit into the file. */
static bool section_find(Elf *elf, uint32_t type, uint64_t file_bytes, Elf_Scn **ret_section,
			 GElf_Shdr *ret_header)
{
	Elf_Scn *section = NULL;

	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;

		if (!gelf_getshdr(section, &header) || header.sh_type != type)
			continue;
		if (header.sh_offset > file_bytes || header.sh_size > file_bytes - header.sh_offset ||
		    header.sh_size > TABLE_MAX_BYTES || header.sh_flags & SHF_COMPRESSED)
			continue;
		*ret_section = section;
		*ret_header = header;
		return true;
	}
	return false;
}

static bool is_function(const GElf_Sym *symbol)
{
	unsigned type = GELF_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
	       symbol->st_value && symbol->st_name;
}

static int table_fill(Elf *elf, Elf_Scn *section, const GElf_Shdr *header, struct table *table)
{
	Elf_Data *data = elf_getdata(section, NULL);
	size_t n = header->sh_size / sizeof(Elf64_Sym), n_functions = 0;
	GElf_Shdr strings;
	GElf_Sym symbol;

	if (!data || !gelf_getshdr(elf_getscn(elf, header->sh_link), &strings) ||
	    strings.sh_type != SHT_STRTAB)
		return -ENOEXEC;
	for (size_t i = 0; i < n && gelf_getsym(data, (int)i, &symbol); i++)
		n_functions += is_function(&symbol);
	if (!n_functions)
		return 0;
	table->items = calloc(n_functions, sizeof(*table->items));
	if (!table->items)
		return -ENOMEM;
	for (size_t i = 0; i < n && gelf_getsym(data, (int)i, &symbol) && table->n < n_functions; i++) {
		if (is_function(&symbol))
			table->items[table->n++] = (struct function){
			    symbol.st_value,
			    symbol.st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)symbol.st_size,
			    symbol.st_name};
	}
	qsort(table->items, table->n, sizeof(*table->items), function_compare);
	table->strings_offset = strings.sh_offset;
	table->strings_bytes = strings.sh_size;
	return 0;
}

/* Reads .symtab, or .dynsym if there is none and full_only is not set. */
static int table_read(Elf *elf, uint64_t file_bytes, bool full_only, struct table *table)
{
	Elf_Scn *section;
	GElf_Shdr header;

	if (section_find(elf, SHT_SYMTAB, file_bytes, &section, &header)) {
		table->full = true;
		return table_fill(elf, section, &header, table);
	}
	if (full_only || !section_find(elf, SHT_DYNSYM, file_bytes, &section, &header))
		return 0;
	return table_fill(elf, section, &header, table);
}

/* Reads the build ID as hexadecimal digits; "": there is none. */
static void build_id_read(Elf *elf, uint64_t file_bytes, char text[2 * BUILD_ID_MAX + 1])
{
	Elf_Scn *section = NULL;
	GElf_Shdr header;

	text[0] = '\0';
	while ((section = elf_nextscn(elf, section))) {
		size_t at = 0, name, description;
		Elf_Data *data;
		GElf_Nhdr note;

		if (!gelf_getshdr(section, &header) || header.sh_type != SHT_NOTE ||
		    header.sh_size > NOTES_MAX_BYTES || header.sh_offset > file_bytes)
			continue;
		data = elf_getdata(section, NULL);
		while (data && (at = gelf_getnote(data, at, &note, &name, &description)) > 0) {
			const uint8_t *id = (const uint8_t *)data->d_buf + description;

			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
			    memcmp((const char *)data->d_buf + name, "GNU", 4) || !note.n_descsz ||
			    note.n_descsz > BUILD_ID_MAX)
				continue;
			for (size_t i = 0; i < note.n_descsz; i++)
				snprintf(text + 2 * i, 3, "%02x", id[i]);
			return;
		}
	}
}

static int open_elf(int fd, uint64_t *ret_bytes, Elf **ret_elf)
{
	struct stat info;
	Elf *elf;

	if (elf_version(EV_CURRENT) == EV_NONE || fstat(fd, &info) || !S_ISREG(info.st_mode))
		return -ENOEXEC;
	/* ELF_C_READ, because a mapping would kill us if the job cut the file short. */
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (!elf)
		return -ENOEXEC;
	if (elf_kind(elf) != ELF_K_ELF || gelf_getclass(elf) != ELFCLASS64) {
		elf_end(elf);
		return -ENOEXEC;
	}
	*ret_bytes = (uint64_t)info.st_size;
	*ret_elf = elf;
	return 0;
}

/* Reads the distribution's separate file that has all symbols of a stripped one. */
static void debug_file_read(const char *debug_root, const char *build_id, struct table *table)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	_cleanup_(closep) int fd = -1;
	struct table full = {.fd = -1};
	uint64_t file_bytes;
	char path[512];

	if (!debug_root || strlen(build_id) < 4)
		return;
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", debug_root, build_id, build_id + 2);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || open_elf(fd, &file_bytes, &elf))
		return;
	if (table_read(elf, file_bytes, true, &full) || !full.n) {
		free(full.items);
		return;
	}
	full.fd = steal_fd(&fd);
	free(table->items);
	*table = full;
}

int elf_symbols_open(int fd, const char *debug_root, struct elf_symbols **ret_symbols)
{
	struct elf_symbols *symbols = calloc(1, sizeof(*symbols));
	_cleanup_(elf_endp) Elf *elf = NULL;
	char build_id[2 * BUILD_ID_MAX + 1];
	uint64_t file_bytes;
	int r;

	if (!symbols) {
		close(fd);
		return -ENOMEM;
	}
	symbols->fd = fd;
	symbols->table.fd = -1;
	r = open_elf(fd, &file_bytes, &elf);
	if (r == 0)
		r = segments_read(elf, symbols);
	if (r == 0)
		r = table_read(elf, file_bytes, false, &symbols->table);
	if (r < 0) {
		elf_symbols_close(symbols);
		return r;
	}
	if (!symbols->table.full) {
		build_id_read(elf, file_bytes, build_id);
		debug_file_read(debug_root, build_id, &symbols->table);
	}
	*ret_symbols = symbols;
	return 0;
}

void elf_symbols_close(struct elf_symbols *symbols)
{
	if (!symbols)
		return;
	free(symbols->table.items);
	closep(&symbols->table.fd);
	closep(&symbols->fd);
	free(symbols);
}

static bool address_of(const struct elf_symbols *symbols, uint64_t file_offset, uint64_t *ret_address)
{
	for (size_t i = 0; i < symbols->n_segments; i++) {
		const struct segment *segment = &symbols->segments[i];
		/* The kernel maps whole pages, so a mapping may begin a little before its segment. */
		uint64_t begin = segment->offset & ~UINT64_C(4095);

		if (file_offset >= begin && file_offset - begin < segment->bytes + segment->offset - begin) {
			*ret_address = segment->address + (file_offset - segment->offset);
			return true;
		}
	}
	return false;
}

static int name_read(const struct elf_symbols *symbols, uint32_t at, char *name, size_t size)
{
	const struct table *table = &symbols->table;
	int fd = table->fd >= 0 ? table->fd : symbols->fd;
	uint64_t offset = table->strings_offset + at;
	ssize_t n;

	if (at >= table->strings_bytes || offset > INT64_MAX)
		return -ENOENT;
	n = pread(fd, name, size - 1, (off_t)offset);
	if (n <= 0)
		return -ENOENT;
	name[n] = '\0';
	return name[0] ? 0 : -ENOENT;
}

int elf_symbols_function(struct elf_symbols *symbols, uint64_t file_offset, char *name, size_t size)
{
	const struct table *table = &symbols->table;
	const struct function *function;
	uint64_t address, bytes;
	size_t n;

	if (!address_of(symbols, file_offset, &address))
		return -ENOENT;
	n = sorted_count(table->n, i, table->items[i].address <= address);
	if (!n)
		return -ENOENT;
	function = &table->items[n - 1];
	bytes = function->bytes;
	/* Assembly often has no sizes. If only exported names are known, this guess would be wrong. */
	if (!bytes && table->full)
		bytes = ASSEMBLY_MAX_GAP;
	if (address - function->address >= bytes)
		return -ENOENT;
	return name_read(symbols, function->name, name, size);
}

/* Variables are few and asked for once, so there is no index. */
static int variable_find(const struct elf_symbols *symbols, const char *variable, uint64_t *ret_address)
{
	_cleanup_(elf_endp) Elf *elf = NULL;
	uint64_t file_bytes;
	Elf_Scn *section;
	GElf_Shdr header;
	Elf_Data *data;
	GElf_Sym symbol;
	int r = open_elf(symbols->fd, &file_bytes, &elf);

	if (r < 0)
		return r;
	if (!section_find(elf, SHT_DYNSYM, file_bytes, &section, &header) &&
	    !section_find(elf, SHT_SYMTAB, file_bytes, &section, &header))
		return -ENOENT;
	data = elf_getdata(section, NULL);
	for (size_t i = 0; data && gelf_getsym(data, (int)i, &symbol); i++) {
		const char *name;

		if (GELF_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx == SHN_UNDEF)
			continue;
		name = elf_strptr(elf, header.sh_link, symbol.st_name);
		if (name && !strcmp(name, variable)) {
			*ret_address = symbol.st_value;
			return 0;
		}
	}
	return -ENOENT;
}

int elf_symbols_distance(struct elf_symbols *symbols, const char *variable, uint64_t file_offset,
			 int64_t *ret_distance)
{
	uint64_t address, from;
	int r;

	if (!address_of(symbols, file_offset, &from))
		return -ENOENT;
	r = variable_find(symbols, variable, &address);
	if (r < 0)
		return r;
	*ret_distance = (int64_t)(address - from);
	return 0;
}
