/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Treats arbitrary bytes as a chunk. Input: one byte of options, then the file. Bit 0: the checksum is
 * corrected first, as a hostile writer would do, so that the checks behind it are reached. An accepted chunk
 * must be readable.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/checksum/checksum.h"
#include "dataset/chunk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign(unsigned char *file, size_t bytes)
{
	struct chunk_header *h = (struct chunk_header *)file;

	if (bytes >= sizeof(*h) && h->payload_offset >= sizeof(*h) && h->payload_offset <= bytes)
		h->head_xxh3 =
		    checksum_xxh3_gap(file, h->payload_offset, offsetof(struct chunk_header, head_xxh3));
}

static void use(const struct chunk_view *view, const unsigned char *file)
{
	struct error err = ERROR_INIT;

	for (uint32_t i = 0; i < view->header->n_records; i++) {
		const struct chunk_record *r = &view->records[i];

		if (!chunk_name_is_valid(view->names + r->name_offset, r->name_length))
			abort();
		chunk_verify_record(view, i, file + r->offset, "FUZZ", &err);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	/* A copy of exactly this size is aligned, and sanitizers notice a read past its end. */
	size_t bytes = size - 1;
	unsigned char *file = malloc(bytes ? bytes : 1);
	struct chunk_view view;
	uint64_t needed = 0;
	struct error err = ERROR_INIT;

	if (!file)
		return 0;
	memcpy(file, data + 1, bytes);
	if (data[0] & 1)
		sign(file, bytes);
	if (chunk_parse_head(file, bytes, bytes, "FUZZ", &view, &needed, &err) == 0)
		use(&view, file);
	free(file);
	return 0;
}
