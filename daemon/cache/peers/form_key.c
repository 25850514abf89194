/* SPDX-License-Identifier: Apache-2.0 */
/* What decodes here. Nodes whose decoders are not the same programs, byte by byte, do not give each other
 * forms: the same image may come out of two versions of a library with other pixels. */
#include <link.h>
#include <string.h>

#include "form_answer.h"

#define KEPT_BYTES 4096

struct made_by {
	size_t n;
	uint8_t bytes[KEPT_BYTES];
};

static void add(struct made_by *m, const void *data, size_t bytes)
{
	if (bytes > sizeof(m->bytes) - m->n)
		bytes = sizeof(m->bytes) - m->n;
	memcpy(m->bytes + m->n, data, bytes);
	m->n += bytes;
}

static bool decodes(const char *path)
{
	static const char *const names[] = {"libjpeg", "libturbojpeg", "libpng", "libwebp", "libz"};
	const char *name = strrchr(path, '/');

	if (!path[0]) /* the program itself */
		return true;
	for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++)
		if (strncmp(name + 1, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* Notes hold the build's id; where there is none, sizes say a little. */
static int add_object(struct dl_phdr_info *info, size_t size, void *user)
{
	(void)size;
	if (!decodes(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];

		if (p->p_type == PT_LOAD)
			add(user, &p->p_filesz, sizeof(p->p_filesz));
		if (p->p_type == PT_NOTE)
			add(user, (const void *)(info->dlpi_addr + p->p_vaddr), p->p_memsz);
	}
	return 0;
}

struct checksum_128 form_key(const struct recipe *key)
{
	struct made_by m = {.n = 0};
	struct checksum_128 by;

	add(&m, DIESEL_VERSION, sizeof(DIESEL_VERSION));
	(void)dl_iterate_phdr(add_object, &m);
	by = checksum_xxh3_128(m.bytes, m.n);
	m.n = 0;
	add(&m, &by, sizeof(by));
	add(&m, key, sizeof(*key));
	return checksum_xxh3_128(m.bytes, m.n);
}
