/* SPDX-License-Identifier: Apache-2.0 */
#include "elf_symbols.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_file.h"
#include "lib/cleanup.h"
#include "lib/sorted.h"

#define SEGMENTS_MAX     16
#define BUILD_ID_MAX     64
#define ASSEMBLY_MAX_GAP 4096 /* a function without a size reaches to the next symbol, but no further */

struct elf_segment {
	uint64_t address, offset, bytes;
};

struct function {
	uint64_t address;
	uint32_t bytes;
	uint32_t name; /* offset in the string table */
};

/* One symbol table; names stay in the file until they are asked for. */
struct symbol_table {
	struct function *items; /* sorted by address */
	size_t n;
	int fd; /* file with the strings; -1: the symbols' own file */
	uint64_t strings_offset, strings_bytes;
	bool full; /* the table is .symtab, which includes static functions */
};

struct elf_symbols {
	int fd;
	struct elf_segment segments[SEGMENTS_MAX];
	size_t n_segments;
	struct symbol_table table;
};

static void elf_file_closep(struct elf_file *file)
{
	elf_file_close(file);
}

static int function_compare(const void *left, const void *right)
{
	const struct function *a = left, *b = right;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	/* If an address has several names, the name of the longest function comes last, and is used. */
	return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static void segments_take(const struct elf_file *elf, struct elf_symbols *symbols)
{
	for (size_t i = 0; i < elf->n_segments && symbols->n_segments < SEGMENTS_MAX; i++) {
		const Elf64_Phdr *segment = &elf->segments[i];

		/* Only code segments: neighbouring segments share a page of the file, and callers look up
		 * only code. */
		if (segment->p_type == PT_LOAD && segment->p_flags & PF_X)
			symbols->segments[symbols->n_segments++] =
			    (struct elf_segment){segment->p_vaddr, segment->p_offset, segment->p_filesz};
	}
}

static bool is_function(const Elf64_Sym *symbol)
{
	unsigned type = ELF64_ST_TYPE(symbol->st_info);

	return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol->st_shndx != SHN_UNDEF &&
	       symbol->st_value && symbol->st_name;
}

static int table_fill(const struct elf_file *elf, const Elf64_Shdr *section, struct symbol_table *table)
{
	const Elf64_Shdr *strings = elf_file_linked(elf, section->sh_link, SHT_STRTAB);
	size_t n_bytes = 0, n_functions = 0;
	_cleanup_(freep) Elf64_Sym *all = elf_file_read(elf, section, &n_bytes);
	size_t n = n_bytes / sizeof(*all);

	if (!all || !strings)
		return -ENOEXEC;
	for (size_t i = 0; i < n; i++)
		n_functions += is_function(&all[i]);
	if (!n_functions)
		return 0;
	table->items = calloc(n_functions, sizeof(*table->items));
	if (!table->items)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (is_function(&all[i]))
			table->items[table->n++] = (struct function){
			    all[i].st_value,
			    all[i].st_size > UINT32_MAX ? UINT32_MAX : (uint32_t)all[i].st_size,
			    all[i].st_name};
	}
	qsort(table->items, table->n, sizeof(*table->items), function_compare);
	table->strings_offset = strings->sh_offset;
	table->strings_bytes = strings->sh_size;
	return 0;
}

/* Reads .symtab, or .dynsym if there is none and full_only is not set. */
static int table_read(const struct elf_file *elf, bool full_only, struct symbol_table *table)
{
	const Elf64_Shdr *section = elf_file_section(elf, SHT_SYMTAB, NULL);

	table->full = section != NULL;
	if (!section && !full_only)
		section = elf_file_section(elf, SHT_DYNSYM, NULL);
	return section ? table_fill(elf, section, table) : 0;
}

/* Reads the build ID as hexadecimal digits; "": there is none. */
static void build_id_read(const struct elf_file *elf, char text[2 * BUILD_ID_MAX + 1])
{
	const Elf64_Shdr *section = elf_file_section(elf, SHT_NOTE, ".note.gnu.build-id");
	size_t n_bytes = 0, at = 0;
	_cleanup_(freep) char *notes = section ? elf_file_read(elf, section, &n_bytes) : NULL;
	struct elf_note note;

	text[0] = '\0';
	while (notes && elf_note_next(notes, n_bytes, &at, &note)) {
		if (note.type != NT_GNU_BUILD_ID || note.name_bytes != 4 || memcmp(note.name, "GNU", 4) ||
		    !note.data_bytes || note.data_bytes > BUILD_ID_MAX)
			continue;
		for (size_t i = 0; i < note.data_bytes; i++)
			snprintf(text + 2 * i, 3, "%02x", (uint8_t)note.data[i]);
		return;
	}
}

/* Reads the distribution's separate file that has all symbols of a stripped one. */
static void debug_file_read(const char *debug_root, const char *build_id, struct symbol_table *table)
{
	_cleanup_(elf_file_closep) struct elf_file elf = {.fd = -1};
	_cleanup_(closep) int fd = -1;
	struct symbol_table full = {.fd = -1};
	char path[512];

	if (!debug_root || strlen(build_id) < 4)
		return;
	snprintf(path, sizeof(path), "%s/.build-id/%.2s/%s.debug", debug_root, build_id, build_id + 2);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || elf_file_open(fd, &elf))
		return;
	if (table_read(&elf, true, &full) || !full.n) {
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
	_cleanup_(elf_file_closep) struct elf_file elf = {.fd = -1};
	char build_id[2 * BUILD_ID_MAX + 1];
	int r;

	if (!symbols) {
		close(fd);
		return -ENOMEM;
	}
	symbols->fd = fd;
	symbols->table.fd = -1;
	r = elf_file_open(fd, &elf);
	if (r == 0)
		r = table_read(&elf, false, &symbols->table);
	if (r < 0) {
		elf_symbols_close(symbols);
		return r;
	}
	segments_take(&elf, symbols);
	if (!symbols->table.full) {
		build_id_read(&elf, build_id);
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
		const struct elf_segment *segment = &symbols->segments[i];
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
	const struct symbol_table *table = &symbols->table;
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
	const struct symbol_table *table = &symbols->table;
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

/* There are few variables, and each is looked up only once, so there is no index. */
static int variable_find(const struct elf_symbols *symbols, const char *variable, uint64_t *ret_address)
{
	_cleanup_(elf_file_closep) struct elf_file elf = {.fd = -1};
	_cleanup_(freep) Elf64_Sym *all = NULL;
	_cleanup_(freep) char *names = NULL;
	size_t n_bytes = 0, n_names = 0;
	const Elf64_Shdr *section, *strings;
	int r = elf_file_open(symbols->fd, &elf);

	if (r < 0)
		return r;
	section = elf_file_section(&elf, SHT_DYNSYM, NULL);
	if (!section)
		section = elf_file_section(&elf, SHT_SYMTAB, NULL);
	strings = section ? elf_file_linked(&elf, section->sh_link, SHT_STRTAB) : NULL;
	if (!strings)
		return -ENOENT;
	all = elf_file_read(&elf, section, &n_bytes);
	names = elf_file_read(&elf, strings, &n_names);
	for (size_t i = 0; all && names && i < n_bytes / sizeof(*all); i++) {
		const char *name = elf_text(names, n_names, all[i].st_name);

		if (ELF64_ST_TYPE(all[i].st_info) == STT_OBJECT && all[i].st_shndx != SHN_UNDEF && name &&
		    !strcmp(name, variable)) {
			*ret_address = all[i].st_value;
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
