/* SPDX-License-Identifier: Apache-2.0 */
#include "usdt.h"

#include <gelf.h>
#include <libelf.h>
#include <string.h>

#include "symbol_private.h"

#define NOTE_TYPE 3
#define NOTE_NAME "stapsdt"

struct note_reader {
	const struct symbol_file *file;
	uint64_t base; /* of .stapsdt.base; 0: there is none */
	int (*visit)(void *user, const struct usdt_probe *probe);
	void *user;
};

static Elf_Scn *section_find(Elf *elf, const char *wanted, GElf_Shdr *ret_header)
{
	Elf_Scn *section = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names))
		return NULL;
	while ((section = elf_nextscn(elf, section))) {
		const char *name;

		if (!gelf_getshdr(section, ret_header))
			return NULL;
		name = elf_strptr(elf, names, ret_header->sh_name);
		if (name && !strcmp(name, wanted))
			return section;
	}
	return NULL;
}

/* Returns the text at *at and moves *at behind it; NULL if the text does not end within the note. */
static const char *take_text(const char **at, const char *end)
{
	const char *text = *at, *zero = memchr(text, 0, (size_t)(end - text));

	if (!zero)
		return NULL;
	*at = zero + 1;
	return text;
}

static int take_note(const struct note_reader *reader, const char *data, size_t size)
{
	const char *end = data + size, *at = data + 3 * sizeof(uint64_t);
	struct usdt_probe probe = {0};
	uint64_t words[3], moved = 0;

	if (size < sizeof(words))
		return 0;
	memcpy(words, data, sizeof(words));
	probe.provider = take_text(&at, end);
	probe.name = probe.provider ? take_text(&at, end) : NULL;
	if (!probe.name)
		return 0;
	if (reader->base && words[1])
		moved = reader->base - words[1];
	if (symbol_file_offset(reader->file, words[0] + moved, true, &probe.offset))
		return 0;
	if (words[2] && symbol_file_offset(reader->file, words[2] + moved, false, &probe.semaphore_offset))
		return 0;
	return reader->visit(reader->user, &probe);
}

int usdt_each(const struct symbol_file *file, int (*visit)(void *user, const struct usdt_probe *probe),
	      void *user)
{
	struct note_reader reader = {.file = file, .visit = visit, .user = user};
	GElf_Shdr header;
	Elf_Scn *section = section_find(file->elf, ".stapsdt.base", &header);
	size_t at = 0, next, name_at, data_at;
	GElf_Nhdr note;
	Elf_Data *data;

	if (gelf_getclass(file->elf) != ELFCLASS64)
		return 0;
	if (section)
		reader.base = header.sh_addr;
	section = section_find(file->elf, ".note.stapsdt", &header);
	data = section ? elf_getdata(section, NULL) : NULL;
	/* gelf_getnote() keeps to the section's bytes. */
	while (data && (next = gelf_getnote(data, at, &note, &name_at, &data_at)) > 0) {
		const char *bytes = data->d_buf;

		if (note.n_type == NOTE_TYPE && note.n_namesz == sizeof(NOTE_NAME) &&
		    !memcmp(bytes + name_at, NOTE_NAME, sizeof(NOTE_NAME))) {
			int r = take_note(&reader, bytes + data_at, note.n_descsz);

			if (r < 0)
				return r;
		}
		at = next;
	}
	return 0;
}
