/* SPDX-License-Identifier: Apache-2.0 */
#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/collector.h"
#include "lib/hash.h"

#define SLOTS     (1U << 18) /* slots of the table of notes already passed on; 2 MiB */
#define GIVEN_MAX (SLOTS / 2)

struct names {
	uint64_t given[SLOTS]; /* keys by hash; 0: free */
	size_t n_given;
};

struct names *names_new(void)
{
	return calloc(1, sizeof(struct names));
}

void names_free(struct names *names)
{
	free(names);
}

/* Returns the hash of the data, but never 0, which means "none". */
static uint64_t hash(const void *data, size_t size)
{
	uint64_t sum = hash_bytes(HASH_START, data, size);

	return sum ? sum : 1;
}

/* Returns 1 if the key is new, 0 if it is known, -1 if it is new but the table is full. */
static int remember(struct names *names, uint64_t key)
{
	/* The last bytes of the data affect the low bits of FNV only weakly. */
	size_t at = (key ^ key >> 32) % SLOTS;

	for (; names->given[at]; at = (at + 1) % SLOTS)
		if (names->given[at] == key)
			return 0;
	if (names->n_given == GIVEN_MAX)
		return -1;
	names->given[at] = key;
	names->n_given++;
	return 1;
}

static uint64_t give(struct names *names, const char *kind, const void *data, size_t size,
		     const struct collector_sink *sink)
{
	uint64_t key = hash(data, size);
	int state = remember(names, key);

	if (state < 0)
		return 0;
	if (state > 0 && sink && sink->metadata)
		sink->metadata(sink->user, kind, key, data, size);
	return key;
}

/* Returns the length of the UTF-8 character that begins here, or 0 if none does. */
static size_t character_length(const unsigned char *text)
{
	size_t n = text[0] < 0x80 ? 1 : text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;

	if (text[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

/* Copies printable characters except ';', which separates frames. Returns the length with the NUL. */
static size_t put_text(char *to, size_t size, const char *from)
{
	const unsigned char *text = (const unsigned char *)from;
	size_t n = 0;

	while (*text) {
		size_t length = character_length(text);

		if (n + (length ? length : 1) >= size)
			break;
		if (length > 1) {
			memcpy(to + n, text, length);
			n += length;
			text += length;
			continue;
		}
		to[n++] = length == 0 || *text < 0x20 || *text == 0x7f ? '?'
			  : *text == ';'                               ? ','
								       : (char)*text;
		text++;
	}
	to[n] = '\0';
	return n + 1;
}

uint64_t names_frame(struct names *names, enum frame_kind kind, const char *library, const char *function,
		     const struct collector_sink *sink)
{
	char data[METADATA_FRAME_BYTES_MAX];
	size_t n = 1;

	data[0] = (char)kind;
	n += put_text(data + n, (sizeof(data) - 2) / 2, library);
	n += put_text(data + n, sizeof(data) - n, function);
	return give(names, METADATA_FRAME, data, n, sink);
}

uint64_t names_stack(struct names *names, const uint64_t *frames, size_t n, const struct collector_sink *sink)
{
	if (!n)
		return 0;
	return give(names, METADATA_STACK, frames, n * sizeof(*frames), sink);
}
