/* SPDX-License-Identifier: Apache-2.0 */
#include "usdt.h"

#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "symbol_private.h"

#define NOTE_TYPE 3
#define NOTE_NAME "stapsdt"

struct note_reader {
	const struct elf_file *elf;
	uint64_t base; /* address of .stapsdt.base; 0: none */
	int (*visit)(void *user, const struct usdt_probe *probe);
	void *user;
};

/* Returns the text at *at and advances *at; NULL if the text does not end within the note. */
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
	if (elf_file_offset(reader->elf, words[0] + moved, true, &probe.offset))
		return 0;
	if (words[2] && elf_file_offset(reader->elf, words[2] + moved, false, &probe.semaphore_offset))
		return 0;
	return reader->visit(reader->user, &probe);
}

int usdt_each(const struct symbol_file *file, int (*visit)(void *user, const struct usdt_probe *probe),
	      void *user)
{
	const struct elf_file *elf = &file->elf;
	const Elf64_Shdr *base = elf_file_section(elf, SHT_PROGBITS, ".stapsdt.base");
	const Elf64_Shdr *section = elf_file_section(elf, SHT_NOTE, ".note.stapsdt");
	struct note_reader reader = {
	    .elf = elf, .base = base ? base->sh_addr : 0, .visit = visit, .user = user};
	size_t n_bytes = 0, at = 0;
	_cleanup_(freep) char *notes = section ? elf_file_read(elf, section, &n_bytes) : NULL;
	struct elf_note note;

	while (notes && elf_note_next(notes, n_bytes, &at, &note)) {
		int r;

		if (note.type != NOTE_TYPE || note.name_bytes != sizeof(NOTE_NAME) ||
		    memcmp(note.name, NOTE_NAME, sizeof(NOTE_NAME)))
			continue;
		r = take_note(&reader, note.data, note.data_bytes);
		if (r < 0)
			return r;
	}
	return 0;
}
